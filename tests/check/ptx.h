/* Runs one thread of a kernel in PTX on the CPU, as far as the kernel of gpu.bw needs it: what the text means, and not
 * what the program that wrote it believes. */
#ifndef LS_TESTS_CHECK_PTX_H
#define LS_TESTS_CHECK_PTX_H

#include <stdint.h>

/* Parameters as of cuLaunchKernel; `block`, `width`, `thread` are the indices in x. Returns NULL, or what was not
 * understood. */
const char *ptx_run(const char *text, const char *kernel, void **parameters, uint32_t block,
                    uint32_t width, uint32_t thread);

#endif
