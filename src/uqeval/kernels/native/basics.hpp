// What all kernels share: key bits, memory, wide sums, threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef _MSC_VER
#include <intrin.h>
#include <malloc.h>
#define UQ_RESTRICT __restrict
#else
#define UQ_RESTRICT __restrict__
#endif
// A function that is compiled twice, and chosen when the module is loaded by what the CPU has. Arguments of its template
// must have types with names: GCC 13 and 14 fail at a lambda's ("internal compiler error: in add_to_same_comdat_group").
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__)
#define UQ_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define UQ_WIDE
#endif

namespace uq {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

constexpr std::size_t kMostRows = (std::size_t(1) << 31) - 1;
constexpr std::size_t kMostInPart = 32767;  // rows of a part: 4 n^4 stays below 2^64
constexpr std::size_t kChunk = 1024;  // rows that one simple loop after another goes over

// Order-preserving bits of a double; adding 0.0 makes -0.0 equal to 0.0.
inline u64 key_of(double x) {
    x += 0.0;
    u64 bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits ^ (static_cast<u64>(static_cast<i64>(bits) >> 63) | (u64(1) << 63));
}

// Asks for the memory at p, which will be written to soon: a store that misses the cache makes all later ones wait.
inline void fetch(const void *p) {
#ifdef _MSC_VER
    _mm_prefetch(static_cast<const char *>(p), _MM_HINT_T0);
#else
    __builtin_prefetch(p, 1);
#endif
}

inline int bit_width(u64 x) {
#ifdef _MSC_VER
    int width = 0;
    for (; x; x >>= 1) ++width;
    return width;
#else
    return x ? 64 - __builtin_clzll(x) : 0;
#endif
}

// ---- memory -------------------------------------------------------------------------------------------------------

// Uninitialised memory that is kept between calls: at 1e5 rows first-touch page faults are a third of the time.
// From 1 MiB on it is aligned to 2 MiB and asks for huge pages, of which one takes the place of 512.
class Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    Buffer(Buffer &&other) noexcept
        : mapped_(std::exchange(other.mapped_, false)), data_(std::exchange(other.data_, nullptr)),
          capacity_(std::exchange(other.capacity_, 0)) {}
    ~Buffer() { release(); }

    template <class T> T *get(std::size_t n) {
        static_assert(std::is_trivial<T>::value, "memory is not initialised");
        const std::size_t bytes = std::max<std::size_t>(n * sizeof(T), 64);
        if (bytes > capacity_) {
            release();
            const bool large = bytes >= (std::size_t(1) << 20);
            const std::size_t align = large ? std::size_t(1) << 21 : 64;
            const std::size_t rounded = (bytes + align - 1) / align * align;
            data_ = large ? map(rounded, align) : allocate(rounded);
            if (!data_) throw std::bad_alloc();
            capacity_ = rounded;
        }
        return static_cast<T *>(data_);
    }

    // Large blocks go back at once, or whenever the system wants them: until then they cost nothing to use again.
    void trim() {
        if (capacity_ <= kKeep) return;
#if defined(__linux__) && defined(MADV_FREE)
        if (mapped_ && capacity_ <= kLend && madvise(data_, capacity_, MADV_FREE) == 0) return;
#endif
        release();
    }

  private:
    static constexpr std::size_t kKeep = std::size_t(1) << 24, kLend = std::size_t(1) << 28;

    static void *allocate(std::size_t bytes) {
#ifdef _MSC_VER
        return _aligned_malloc(bytes, 64);
#else
        return std::aligned_alloc(64, bytes);
#endif
    }

    // Straight from the system: what goes back to `free` may stay with the process.
    void *map(std::size_t bytes, std::size_t align) {
#ifdef __linux__
        char *all = static_cast<char *>(
            mmap(nullptr, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (all == MAP_FAILED) return nullptr;
        const std::size_t before = (align - reinterpret_cast<std::uintptr_t>(all) % align) % align;
        if (before) munmap(all, before);
        if (before < align) munmap(all + before + bytes, align - before);
        madvise(all + before, bytes, MADV_HUGEPAGE);
        mapped_ = true;
        return all + before;
#else
        static_cast<void>(align);
        return allocate(bytes);
#endif
    }

    void release() {
#ifdef _MSC_VER
        _aligned_free(data_);
#else
#ifdef __linux__
        if (mapped_) munmap(data_, capacity_);
        if (mapped_) data_ = nullptr;
        mapped_ = false;
#endif
        std::free(data_);
#endif
        data_ = nullptr;
        capacity_ = 0;
    }
    bool mapped_ = false;
    void *data_ = nullptr;
    std::size_t capacity_ = 0;
};

// ---- sums that pass 2^64 ------------------------------------------------------------------------------------------

struct Wide {
    u64 high = 0, low = 0;
    void add(u64 x) {
        low += x;
        high += low < x;
    }
    void subtract(u64 x) {
        high -= low < x;
        low -= x;
    }
    void add(const Wide &x) {
        add(x.low);
        high += x.high;
    }
    // x * 2^32
    void add_shifted(u64 x) {
        add(x << 32);
        high += x >> 32;
    }
    // x^2 * times without overflow: x^2 < 2^64, and the halves of the product are added apart.
    void add_times(u64 x, u64 times) {
        const u64 square = x * x;
        add((square & 0xffffffffu) * times);
        add_shifted((square >> 32) * times);
    }
};

// Squares whose halves are summed apart: of at most 2^31 numbers below 2^32 both stay below 2^64.
struct Squares {
    u64 low = 0, high = 0;
    void add(u64 x, u64 times) {
        const u64 square = x * x;
        low += (square & 0xffffffffu) * times;
        high += (square >> 32) * times;
    }
    void add_to(Wide &sum) const {
        sum.add(low);
        sum.add_shifted(high);
    }
};

// ---- threads ------------------------------------------------------------------------------------------------------

// Runs job(0..jobs-1) on up to `threads` threads; the first exception is thrown again here.
template <class Job> void in_parallel(std::size_t jobs, int threads, Job job) {
    if (threads <= 1 || jobs <= 1) {
        for (std::size_t j = 0; j < jobs; ++j) job(j);
        return;
    }
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr problem;
    auto work = [&] {
        for (std::size_t j; !failed && (j = next++) < jobs;) {
            try {
                job(j);
            } catch (...) {
                if (!failed.exchange(true)) problem = std::current_exception();
            }
        }
    };
    std::vector<std::thread> pool;
    for (std::size_t t = 1; t < std::min<std::size_t>(jobs, static_cast<std::size_t>(threads)); ++t) {
        try {
            pool.emplace_back(work);
        } catch (const std::system_error &) {
            break;  // no further thread to be had: the ones there are do the work
        }
    }
    work();
    for (auto &thread : pool) thread.join();
    if (problem) std::rethrow_exception(problem);
}

// job(part, from, to) over [0, n) cut into `parts` even pieces.
template <class Job> void over_rows(std::size_t n, int parts, Job job) {
    const std::size_t count = static_cast<std::size_t>(std::max(parts, 1));
    in_parallel(count, parts, [&](std::size_t p) { job(p, n * p / count, n * (p + 1) / count); });
}

}  // namespace uq
