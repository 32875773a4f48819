// A few threads that run one function together, spin briefly between calls, then sleep.
#pragma once
#include <atomic>
#include <climits>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

static inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Pool {
  public:
    typedef void (*Body)(void* context, int thread);

    // Tell sleepers that a call is near: waking takes longer than what their caller does until then.
    void wake(int threads) {
        resize(threads);
        calls_.fetch_add(1);
        if (sleepers_.load()) syscall(SYS_futex, &calls_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    }

    // Run body on threads 0 .. threads-1 (0 is the caller) and return when all have finished.
    void run(int threads, Body body, void* context) {
        if (threads == 1) return body(context, 0);
        resize(threads);
        body_ = body, context_ = context, active_ = threads;
        left_.store(size_ - 1, std::memory_order_relaxed);
        epoch_.fetch_add(1);
        wake(threads);
        body(context, 0);
        for (int spins = 0; left_.load(std::memory_order_acquire); ++spins) patient(spins);
    }

    // All `threads` of the running call wait here for one another and call idle() meanwhile.
    template <class F>
    void barrier(int threads, F idle) {
        int turn = turn_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.store(turn + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; turn_.load(std::memory_order_acquire) == turn; ++spins) {
            idle();
            patient(spins);
        }
    }

  private:
    static constexpr int kSpins = 4000;  // about 100 us

    static void patient(int spins) {
        if (spins < kSpins)
            relax();
        else
            sched_yield();
    }

    void resize(int threads) {  // only grows; a call may use fewer
        while (size_ < threads) {
            std::thread(&Pool::serve, this, size_, epoch_.load()).detach();
            ++size_;
        }
    }

    void serve(int thread, int seen) {
        for (;;) {
            int calls = calls_.load();
            for (int spins = 0; epoch_.load(std::memory_order_acquire) == seen && spins < kSpins; ++spins) relax();
            if (epoch_.load() == seen) {
                sleepers_.fetch_add(1);
                syscall(SYS_futex, &calls_, FUTEX_WAIT_PRIVATE, calls, nullptr, nullptr, 0);
                sleepers_.fetch_sub(1);
                continue;
            }
            ++seen;
            if (thread < active_) body_(context_, thread);
            left_.fetch_sub(1, std::memory_order_acq_rel);
        }
    }

    alignas(64) std::atomic<int> epoch_{0};  // calls of run
    std::atomic<int> calls_{0};              // and those for sleepers to get up
    std::atomic<int> sleepers_{0};
    int size_ = 1, active_ = 1;
    Body body_ = nullptr;
    void* context_ = nullptr;
    alignas(64) std::atomic<int> left_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> turn_{0};
};
