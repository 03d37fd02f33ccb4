/* What a GPU is given to compute, and what must come out. */
#ifndef LS_CHECK_GPU_KERNEL_H
#define LS_CHECK_GPU_KERNEL_H

#include <stdint.h>

#define LS_CHECK_KERNEL        "lockstep_chains"
#define LS_CHECK_KERNEL_ADDEND (-1.9F)
enum {
    LS_CHECK_KERNEL_CHAINS = 8,
    LS_CHECK_KERNEL_STEPS = 4 /* a turn: of every chain a multiplication and an addition each */
};

/* Text of a module with one function, of that name: (u32 out[threads], u32 turns > 0, f32 ADDEND) of one-dimensional
 * blocks; each thread sets its element. */
extern const char ls_check_kernel_ptx[];
/* What each thread must have set its element to: the chains' ends, their bits combined by exclusive or. */
uint32_t ls_check_kernel_result(uint32_t turns);

#endif
