// Conditions that have to hold; the program says which line it fails on, with the library's last error, and ends.
#ifndef MUST_H
#define MUST_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <userswap.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)

#define MUST(condition)                                                                              \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            fprintf(stderr, "%s:%d: %s fails (%s)\n", __FILE__, __LINE__, #condition, us_last_error()); \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

// A call that fails with this code, and whose line has these words.
#define REFUSED(call, code, words)                          \
    do {                                                    \
        MUST((call) == (code));                             \
        MUST(us_last_code() == (code));                     \
        MUST(strstr(us_last_error(), (words)) != NULL);     \
        MUST(strchr(us_last_error(), '\n') == NULL);        \
    } while (0)

// The same for calls that return NULL or 0 then.
#define REFUSED_NULL(call, code, words)                     \
    do {                                                    \
        MUST(!(call));                                      \
        MUST(us_last_code() == (code));                     \
        MUST(strstr(us_last_error(), (words)) != NULL);     \
    } while (0)

// An engine with the smallest budget; `fault` is thread or signal.
static inline us_engine *small_engine(const char *fault) {
    us_options *options = us_options_new(16 * MIB);
    MUST(options);
    MUST(us_options_set(options, "fault", fault) == US_OK);
    MUST(us_options_set(options, "swap", "mem:256M") == US_OK);
    MUST(us_options_set(options, "arena", "2G") == US_OK);
    us_engine *engine = us_engine_new(options);
    MUST(engine);
    MUST(us_options_free(options) == US_OK);
    return engine;
}

static inline uint64_t counter(const us_engine *engine, const char *name) {
    uint64_t value = 0;
    MUST(us_counter(engine, name, &value) == US_OK);
    return value;
}

static inline us_usage usage(const us_engine *engine) {
    us_usage now;
    MUST(us_usage_read(engine, &now, sizeof now) == US_OK);
    return now;
}

// Nothing is in use any more, as soon as reads ahead that were under way have ended, but for a run of zeros that the
// server was about to map when its memory went.
static inline void all_is_back(const us_engine *engine) {
    us_usage now = usage(engine);
    for (int i = 0; i < 60000 && (now.slots_used != 0 || now.resident > 256); i++) {
        usleep(1000);
        now = usage(engine);
    }
    MUST(now.slots_used == 0 && now.resident <= 256);
}

static inline uint64_t word(uint64_t stamp, size_t index) {
    return (stamp + index) * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

static inline void fill(void *memory, size_t bytes, uint64_t stamp) {
    uint64_t *words = (uint64_t *)memory;
    for (size_t i = 0; i < bytes / 8; i++) words[i] = word(stamp, i);
}

static inline void check(const void *memory, size_t bytes, uint64_t stamp) {
    const uint64_t *words = (const uint64_t *)memory;
    for (size_t i = 0; i < bytes / 8; i++) MUST(words[i] == word(stamp, i));
}

static inline void check_zero(const void *memory, size_t bytes) {
    const unsigned char *at = (const unsigned char *)memory;
    for (size_t i = 0; i < bytes; i++) MUST(at[i] == 0);
}
#endif
