/* The arithmetic of gpu.bw: eight chains of x = x * x + c, in single precision, with one rounding a step (FMA). For
 * this c they are chaotic and stay between -2 and 2: one wrong bit anywhere makes another result, and what is right
 * is right to the last bit, on any processor. All threads do the same. */
#include "check/gpu_kernel.h"

#include <math.h>
#include <string.h>

/* In PTX, NVIDIA's portable assembler, which every driver compiles for the GPU at hand: that of the oldest one
 * still met. Four steps a turn, so that counting costs little. */
#define CHAINS_STEP                \
    "fma.rn.f32 %x0,%x0,%x0,%c;\n" \
    "fma.rn.f32 %x1,%x1,%x1,%c;\n" \
    "fma.rn.f32 %x2,%x2,%x2,%c;\n" \
    "fma.rn.f32 %x3,%x3,%x3,%c;\n" \
    "fma.rn.f32 %x4,%x4,%x4,%c;\n" \
    "fma.rn.f32 %x5,%x5,%x5,%c;\n" \
    "fma.rn.f32 %x6,%x6,%x6,%c;\n" \
    "fma.rn.f32 %x7,%x7,%x7,%c;\n"
#define CHAIN_END(x)         \
    "mov.b32 %bits," x ";\n" \
    "xor.b32 %sum,%sum,%bits;\n"

const char ls_check_kernel_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry " LS_CHECK_KERNEL "(.param .u64 out,.param .u32 turns,.param .f32 addend)\n"
    "{\n"
    ".reg .pred %more;\n"
    ".reg .b32 %left,%thread,%block,%width,%sum,%bits;\n"
    ".reg .b64 %at,%offset;\n"
    ".reg .f32 %c,%x0,%x1,%x2,%x3,%x4,%x5,%x6,%x7;\n"
    "ld.param.u64 %at,[out];\n"
    "ld.param.u32 %left,[turns];\n"
    "ld.param.f32 %c,[addend];\n"
    "mov.f32 %x0,0f3D800000;\n" /* 1/16, 2/16, ... 8/16 */
    "mov.f32 %x1,0f3E000000;\n"
    "mov.f32 %x2,0f3E400000;\n"
    "mov.f32 %x3,0f3E800000;\n"
    "mov.f32 %x4,0f3EA00000;\n"
    "mov.f32 %x5,0f3EC00000;\n"
    "mov.f32 %x6,0f3EE00000;\n"
    "mov.f32 %x7,0f3F000000;\n"
    "again:\n" CHAINS_STEP CHAINS_STEP CHAINS_STEP CHAINS_STEP "sub.u32 %left,%left,1;\n"
    "setp.ne.u32 %more,%left,0;\n"
    "@%more bra again;\n"
    "mov.u32 %sum,0;\n" CHAIN_END("%x0") CHAIN_END("%x1") CHAIN_END("%x2") CHAIN_END("%x3")
        CHAIN_END("%x4") CHAIN_END("%x5") CHAIN_END("%x6")
            CHAIN_END("%x7") "cvta.to.global.u64 %at,%at;\n"
                             "mov.u32 %block,%ctaid.x;\n"
                             "mov.u32 %width,%ntid.x;\n"
                             "mov.u32 %thread,%tid.x;\n"
                             "mad.lo.u32 %thread,%block,%width,%thread;\n"
                             "mul.wide.u32 %offset,%thread,4;\n"
                             "add.u64 %at,%at,%offset;\n"
                             "st.global.u32 [%at],%sum;\n"
                             "ret;\n"
                             "}\n";

uint32_t ls_check_kernel_result(uint32_t turns)
{
    uint32_t sum = 0;
    for (int chain = 1; chain <= LS_CHECK_KERNEL_CHAINS; chain++) {
        float x = (float)chain / 16;
        uint32_t bits;
        for (uint64_t step = 0; step < (uint64_t)turns * LS_CHECK_KERNEL_STEPS; step++)
            x = fmaf(x, x, LS_CHECK_KERNEL_ADDEND);
        memcpy(&bits, &x, sizeof bits);
        sum ^= bits;
    }
    return sum;
}
