// A CUDA driver and NVML over memory files, for machines without a GPU: handles are descriptors, a read-only mapping is a
// read-only mapping of the processor, and the two kernels that are ever launched, sweep and read, run on the caller's thread.
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using u64 = uint64_t;
struct Location { int type, id; };
struct Access { Location location; int flags; };
struct Memory { unsigned long long total, free, used; };
struct Process { unsigned pid; unsigned long long used; unsigned instance, compute; };

static const u64 UNIT = 2 << 20;
static const int NO_MEMORY = 2, NO_HANDLE = 400;
static std::map<u64, int> mapped;  // address to descriptor

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGet(int *device, int index) { return *device = index, index ? 101 : 0; }
int cuDevicePrimaryCtxRetain(void **context, int) { return *context = nullptr, 0; }
int cuCtxSetCurrent(void *) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuDeviceGetAttribute(int *value, int, int) { return *value = 1, 0; }
int cuGetErrorName(int code, const char **name) {
    *name = code == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == NO_HANDLE ? "CUDA_ERROR_INVALID_HANDLE" : "CUDA_ERROR";
    return 0;
}
int cuMemGetAllocationGranularity(size_t *unit, const void *, int) { return *unit = UNIT, 0; }
int cuMemCreate(u64 *handle, size_t size, const void *, unsigned long long) {
    int file = memfd_create("device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, size)) return NO_MEMORY;
    return *handle = file, 0;
}
int cuMemExportToShareableHandle(int *out, u64 handle, int, unsigned long long) {
    *out = dup(int(handle));
    return *out < 0 ? NO_HANDLE : 0;
}
int cuMemImportFromShareableHandle(u64 *handle, void *source, int) {
    int file = dup(int(intptr_t(source)));
    return *handle = file, file < 0 ? NO_HANDLE : 0;
}
int cuMemRelease(u64 handle) { return close(int(handle)) ? NO_HANDLE : 0; }
int cuMemAddressReserve(u64 *address, size_t size, size_t, u64, unsigned long long) {
    void *found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *address = u64(found), found == MAP_FAILED ? NO_MEMORY : 0;
}
int cuMemMap(u64 address, size_t size, size_t, u64 handle, unsigned long long) {
    struct stat about;
    if (fstat(int(handle), &about) || u64(about.st_size) < size) return NO_HANDLE;
    return mapped[address] = dup(int(handle)), 0;
}
int cuMemSetAccess(u64 address, size_t size, const Access *access, size_t) {
    int protection = access->flags == 3 ? PROT_READ | PROT_WRITE : PROT_READ;
    void *found = mmap((void *)address, size, protection, MAP_SHARED | MAP_FIXED, mapped.at(address), 0);
    return found == MAP_FAILED ? NO_MEMORY : 0;
}
int cuMemUnmap(u64 address, size_t size) {
    close(mapped.at(address));
    mapped.erase(address);
    return munmap((void *)address, size);
}
int cuMemAddressFree(u64, size_t) { return 0; }
int cuMemAlloc_v2(u64 *address, size_t size) { return *address = u64(new char[size]), 0; }
int cuMemsetD8_v2(u64 address, unsigned char value, size_t size) { return memset((void *)address, value, size), 0; }
int cuMemcpyHtoD_v2(u64 target, const void *source, size_t size) { return memcpy((void *)target, source, size), 0; }
int cuMemcpyDtoH_v2(void *target, u64 source, size_t size) { return memcpy(target, (void *)source, size), 0; }
int cuMemFree_v2(u64 address) { return delete[] (char *)address, 0; }
int cuEventCreate(double **event, unsigned) { return *event = new double, 0; }
int cuEventRecord(double *event, void *) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return *event = now.tv_sec * 1e3 + now.tv_nsec / 1e6, 0;
}
int cuEventSynchronize(double *) { return 0; }
int cuEventElapsedTime(float *milliseconds, double *begun, double *ended) { return *milliseconds = float(*ended - *begun), 0; }
int cuEventDestroy_v2(double *event) { return delete event, 0; }
int cuModuleLoadData(void **module, const char *text) {
    bool sweep = strstr(text, ".entry sweep"), read = strstr(text, ".entry read");
    return *module = (void *)(intptr_t)(read ? 2 : 1), sweep || read ? 0 : 218;
}
int cuModuleGetFunction(void **function, void *module, const char *) { return *function = module, 0; }
int cuLaunchKernel(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **arguments, void **) {
    u64 *words = *(u64 **)arguments[0], count = *(u64 *)arguments[1], key = *(u64 *)arguments[2], sum = 0;
    if (function == (void *)2) {
        for (u64 i = 0; i < 2 * count; i++) sum ^= words[i];
        return *(volatile u64 *)key = sum, 0;  // the third parameter is where the result goes
    }
    for (u64 i = 0; i < 2 * count; i++) sum += words[i] * (((i + key) * 0x9e3779b97f4a7c15) | 1);
    **(u64 **)arguments[3] = sum;
    return 0;
}

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned, void **device) { return *device = nullptr, 0; }
int nvmlDeviceGetName(void *, char *text, unsigned size) { return strncpy(text, "memory files", size), 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return strncpy(text, "0", size), 0; }
int nvmlDeviceGetMemoryInfo(void *, Memory *memory) { return *memory = {0, 0, 0}, 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *, unsigned *count, Process *) { return *count = 0, 0; }
}
