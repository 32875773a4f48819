// Rows of weights dealt to threads: each walks its own contiguous part in chunks, then helps the others.
#pragma once
#include <atomic>
#include <memory>

class Shares {
  public:
    Shares(long jobs, int threads) : threads_(threads), taken_(new Taken[jobs * threads]) {}

    // Calls body(begin, end) for chunks of job's 0 .. width that no other thread has taken.
    template <class F>
    void deal(long job, int thread, long width, long chunk, F body) {
        long chunks = (width + chunk - 1) / chunk;
        for (int turn = 0; turn < threads_; ++turn) {
            int owner = (thread + turn) % threads_;
            long first = chunks * owner / threads_, last = chunks * (owner + 1) / threads_;
            std::atomic<long>& taken = taken_[job * threads_ + owner].count;
            for (long at; (at = first + taken.fetch_add(1, std::memory_order_relaxed)) < last;)
                body(at * chunk, (at + 1) * chunk < width ? (at + 1) * chunk : width);
        }
    }

  private:
    struct alignas(64) Taken {
        std::atomic<long> count{0};
    };
    int threads_;
    std::unique_ptr<Taken[]> taken_;
};
