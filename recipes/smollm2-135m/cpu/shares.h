// Chunks of work dealt to threads: each takes its own part from the front, then helps the others from the back, so that what
// an owner has fetched ahead is what it needs next.
#pragma once
#include <atomic>
#include <memory>

struct Range {
    long begin, end;
};

class Shares {
  public:
    Shares(long jobs, int threads) : threads_(threads), taken_(new Taken[jobs * threads]) {}

    // The part of `width` rows that belongs to a thread: whole chunks.
    Range part(int thread, long width, long chunk) const {
        long chunks = (width + chunk - 1) / chunk;
        auto edge = [&](long i) {
            long at = chunks * i / threads_ * chunk;
            return at < width ? at : width;
        };
        return {edge(thread), edge(thread + 1)};
    }

    // Calls body(range, own) for chunks of job's 0 .. width that no other thread has taken; own: of this thread's part.
    template <class F>
    void deal(long job, int thread, long width, long chunk, F body) {
        for (int turn = 0; turn < threads_; ++turn) {
            int owner = (thread + turn) % threads_;
            Range part = this->part(owner, width, chunk);
            uint64_t chunks = (part.end - part.begin + chunk - 1) / chunk, step = turn ? kBack : 1;
            std::atomic<uint64_t>& taken = taken_[job * threads_ + owner].count;
            for (;;) {
                uint64_t seen = taken.fetch_add(step, std::memory_order_relaxed), front = seen % kBack, back = seen / kBack;
                if (front + back >= chunks) break;
                long at = part.begin + long(turn ? chunks - 1 - back : front) * chunk;
                body(Range{at, at + chunk < part.end ? at + chunk : part.end}, turn == 0);
            }
        }
    }

  private:
    static constexpr uint64_t kBack = uint64_t(1) << 32;
    struct alignas(64) Taken {
        std::atomic<uint64_t> count{0};  // chunks taken from the front, and kBack times those from the back
    };
    int threads_;
    std::unique_ptr<Taken[]> taken_;
};
