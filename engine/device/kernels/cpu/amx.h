/* AMX: registers for tiles of 16 rows of 64 bytes, and one instruction that multiplies two tiles of bfloat16. Included
   after vectors.h. AMX says whether the code for it is compiled, and `has_tiles` whether this process may run it. */

#if defined SCALAR_BF16 && defined __AMX_BF16__ && defined __AVX512BF16__ && defined __AVX512VBMI__ && defined __linux__
#define AMX 1
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

static int has_tiles;
/* Linux gives a process the registers only if it asks for them. */
__attribute__((constructor)) static void ask_for_tiles(void) { has_tiles = !syscall(SYS_arch_prctl, 0x1023, 18); }

/* Finish the writes before this line. To gcc 12, an instruction that loads tiles reads no memory. */
static inline void before_tiles(void) { __asm__ volatile("" ::: "memory"); }

/* `rows` has the rows of the eight tiles. */
static inline void set_tiles(const uint8_t *rows) {
    TileConfig c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = rows[i];
    }
    before_tiles();
    _tile_loadconfig(&c);
}
static inline void release_tiles(void) { _tile_release(); }
#else
#define AMX 0
static const int has_tiles = 0;
static inline void set_tiles(const uint8_t *rows) {}
static inline void release_tiles(void) {}
#endif
