// Reads `bytes` from `data` with `threads` threads and returns seconds: the floor of anything that must read the weights.
// Every 64-byte line is loaded once and folded into a sum, so that no load can be left out.
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

typedef uint64_t v8 __attribute__((vector_size(64)));

// Four streams a quarter apart: the hardware prefetcher follows each, and this reads faster here than one stream or
// software prefetches do.
static uint64_t read_part(const char* data, size_t bytes) {
    v8 sums[4] = {};
    const v8* lines = reinterpret_cast<const v8*>(data);
    const size_t quarter = bytes / 64 / 4;
    for (size_t i = 0; i < quarter; i++)
        for (int stream = 0; stream < 4; stream++) sums[stream] += lines[stream * quarter + i];
    const v8 all = sums[0] + sums[1] + sums[2] + sums[3];
    uint64_t sum = 0;
    for (int i = 0; i < 8; i++) sum += all[i];
    return sum;
}

extern "C" double read_seconds(const char* data, uint64_t bytes, int threads, uint64_t* sum) {
    std::vector<uint64_t> sums(threads, 0);
    std::vector<std::thread> pool;
    const size_t part = bytes / threads / 4096 * 4096;
    const auto begun = std::chrono::steady_clock::now();
    for (int t = 1; t < threads; t++)
        pool.emplace_back([&, t] { sums[t] = read_part(data + t * part, part); });
    sums[0] = read_part(data, part);
    for (auto& thread : pool) thread.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    *sum = 0;
    for (uint64_t s : sums) *sum += s;
    return seconds * (double(bytes) / (double(part) * threads));
}
