// System calls that no library sees, in the program's own code.
#pragma once
#include <stddef.h>

static inline __attribute__((always_inline)) long raw6(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define RAW_(number, a, b, c, d, e, f, ...)                                                     \
    raw6(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define RAW(...) RAW_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
