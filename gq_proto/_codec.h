/* CRC-32C and big-endian loads for _codec.pyx.
 *
 * States here are raw: start from ~0 (or ~previous) and invert at the end. Three ways, chosen once at run time:
 *   x86-64 with SSE4.2 and PCLMULQDQ: three interleaved crc32q streams over the thirds of a block, joined by carry-less
 *   multiplication (V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011);
 *   AArch64 with the CRC extension: one crc32cd stream;
 *   else slicing by 8 (M. Kounavis, F. Berry, 2005).
 */
#ifndef GQ_CODEC_H
#define GQ_CODEC_H

#include <stdint.h>
#include <stddef.h>
#include <string.h>

static inline uint16_t gq_u16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t gq_u32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t gq_u64(const uint8_t *p) { return (uint64_t)gq_u32(p) << 32 | gq_u32(p + 4); }
static inline void gq_put16(uint8_t *p, uint16_t v) { p[0] = (uint8_t)(v >> 8); p[1] = (uint8_t)v; }
static inline void gq_put32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24); p[1] = (uint8_t)(v >> 16); p[2] = (uint8_t)(v >> 8); p[3] = (uint8_t)v;
}
static inline void gq_put64(uint8_t *p, uint64_t v) { gq_put32(p, (uint32_t)(v >> 32)); gq_put32(p + 4, (uint32_t)v); }

#define GQ_POLY 0x82F63B78u     /* Castagnoli, reflected */

static uint32_t gq_table[8][256];

static void gq_make_table(void) {
    for (int n = 0; n < 256; n++) {
        uint32_t c = (uint32_t)n;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? (c >> 1) ^ GQ_POLY : c >> 1;
        gq_table[0][n] = c;
    }
    for (int n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            gq_table[k][n] = gq_table[0][gq_table[k - 1][n] & 0xFF] ^ (gq_table[k - 1][n] >> 8);
}

static uint32_t gq_crc_soft(uint32_t crc, const uint8_t *p, size_t n) {
    while (n >= 8) {
        uint32_t a = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = gq_table[7][a & 0xFF] ^ gq_table[6][a >> 8 & 0xFF] ^ gq_table[5][a >> 16 & 0xFF] ^ gq_table[4][a >> 24]
            ^ gq_table[3][p[4]] ^ gq_table[2][p[5]] ^ gq_table[1][p[6]] ^ gq_table[0][p[7]];
        p += 8; n -= 8;
    }
    while (n--) crc = gq_table[0][(crc ^ *p++) & 0xFF] ^ (crc >> 8);
    return crc;
}

static uint32_t (*gq_crc_way)(uint32_t, const uint8_t *, size_t) = gq_crc_soft;
static const char *gq_crc_name = "table";

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#define GQ_WORDS 128            /* longest third of a block, in 8-byte words */
static uint32_t gq_shift[2 * GQ_WORDS + 1];     /* [n] = x^(64 n - 33) mod P, reflected: moves a state over n words */

static void gq_make_shift(void) {
    uint32_t v = 0x80000000u;   /* x^0 */
    int at = 0;
    for (int n = 1; n <= 2 * GQ_WORDS; n++) {
        for (; at < 64 * n - 33; at++) v = v & 1 ? (v >> 1) ^ GQ_POLY : v >> 1;
        gq_shift[n] = v;
    }
}

static inline uint64_t gq_word(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

__attribute__((target("sse4.2,pclmul")))
static uint32_t gq_crc_x86(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t a = crc;
    while (n >= 24 * 4) {
        size_t words = n / 24 < GQ_WORDS ? n / 24 : GQ_WORDS, third = words * 8;
        const uint8_t *q = p, *end = p + third;
        uint64_t b = 0, c = 0;
        for (; q < end; q += 8) {
            a = _mm_crc32_u64(a, gq_word(q));
            b = _mm_crc32_u64(b, gq_word(q + third));
            c = _mm_crc32_u64(c, gq_word(q + 2 * third));
        }
        __m128i over2 = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)a), _mm_cvtsi32_si128((int)gq_shift[2 * words]), 0);
        __m128i over1 = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)b), _mm_cvtsi32_si128((int)gq_shift[words]), 0);
        a = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(over2, over1))) ^ c;
        p += 3 * third; n -= 3 * third;
    }
    for (; n >= 8; n -= 8, p += 8) a = _mm_crc32_u64(a, gq_word(p));
    uint32_t rest = (uint32_t)a;
    for (; n; n--, p++) rest = _mm_crc32_u8(rest, *p);
    return rest;
}

static void gq_crc_choose(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        gq_make_shift();
        gq_crc_way = gq_crc_x86;
        gq_crc_name = "sse4.2";
    }
}

#elif defined(__aarch64__) && defined(__linux__) && (defined(__GNUC__) || defined(__clang__))
#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

static uint32_t gq_crc_arm(uint32_t crc, const uint8_t *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(v));
    }
    for (; n; n--, p++) __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*p));
    return crc;
}

static void gq_crc_choose(void) {
    if (getauxval(AT_HWCAP) & HWCAP_CRC32) {
        gq_crc_way = gq_crc_arm;
        gq_crc_name = "armv8";
    }
}

#else
static void gq_crc_choose(void) {}
#endif

static void gq_crc_init(void) { gq_make_table(); gq_crc_choose(); }

/* murmur3, x86 32 bit (Austin Appleby, public domain), seed 0 */
static inline uint32_t gq_rotl(uint32_t x, int r) { return x << r | x >> (32 - r); }

static uint32_t gq_murmur3(const uint8_t *p, size_t n) {
    uint32_t h = 0;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint32_t k = (uint32_t)p[i] | (uint32_t)p[i + 1] << 8 | (uint32_t)p[i + 2] << 16 | (uint32_t)p[i + 3] << 24;
        k *= 0xcc9e2d51u; k = gq_rotl(k, 15); k *= 0x1b873593u;
        h ^= k; h = gq_rotl(h, 13); h = h * 5 + 0xe6546b64u;
    }
    uint32_t k = 0;
    switch (n & 3) {
        case 3: k ^= (uint32_t)p[i + 2] << 16; /* fall through */
        case 2: k ^= (uint32_t)p[i + 1] << 8;  /* fall through */
        case 1: k ^= p[i];
                k *= 0xcc9e2d51u; k = gq_rotl(k, 15); k *= 0x1b873593u; h ^= k;
    }
    h ^= (uint32_t)n;
    h ^= h >> 16; h *= 0x85ebca6bu; h ^= h >> 13; h *= 0xc2b2ae35u; h ^= h >> 16;
    return h;
}

/* A record's header, and the record's CRC in the format's order. The caller has checked that 34 (or `total`) bytes are there. */
typedef struct {
    uint8_t flags, priority, codec, key_null, value_null;
    uint32_t crc, key_size, value_size, headers_size;
    int64_t offset, timestamp;
    uint64_t total;
} gq_head;

static inline uint32_t gq_crc_body(const uint8_t *p, uint64_t total) {
    return gq_crc_way(gq_crc_way(~0u, p + 24, (size_t)total - 24), p, 4);
}
static inline uint32_t gq_crc_stamp(uint32_t state, const uint8_t *p) {
    uint8_t both[16];
    memcpy(both, p + 16, 8);
    memcpy(both + 8, p + 8, 8);
    return ~gq_crc_way(state, both, 16);
}
#endif
