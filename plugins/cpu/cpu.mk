# The CPU backend: a module of its own. The kernel files are built once per instruction set.
if LS_CPU
pkglib_LTLIBRARIES += lockstep_cpu.la
noinst_LTLIBRARIES += libls_cpu_v0.la libls_cpu_v3.la libls_cpu_v4.la

ls_cpu_cflags = $(AM_CFLAGS) -O3 -fno-math-errno -fno-trapping-math -fopenmp-simd \
	-fvisibility=hidden
ls_cpu_kernels = plugins/cpu/kinds.c plugins/cpu/kinds.h plugins/cpu/cpu.h plugins/cpu/colsum.h \
	plugins/cpu/vec.h plugins/cpu/elementwise.c plugins/cpu/dropout.c plugins/cpu/matmul.c \
	plugins/cpu/gemm.c plugins/cpu/gemm.h plugins/cpu/tile.h \
	plugins/cpu/sums.c plugins/cpu/norm.c plugins/cpu/norm_grad.c plugins/cpu/pool.c \
	plugins/cpu/loss.c plugins/cpu/reduce.c plugins/cpu/optim.c

libls_cpu_v0_la_SOURCES = $(ls_cpu_kernels)
libls_cpu_v0_la_CPPFLAGS = $(AM_CPPFLAGS) -DLS_CPU_LEVEL=0
libls_cpu_v0_la_CFLAGS = $(ls_cpu_cflags)
libls_cpu_v3_la_SOURCES = $(ls_cpu_kernels)
libls_cpu_v3_la_CPPFLAGS = $(AM_CPPFLAGS) -DLS_CPU_LEVEL=3
libls_cpu_v3_la_CFLAGS = $(ls_cpu_cflags)
libls_cpu_v4_la_SOURCES = $(ls_cpu_kernels)
libls_cpu_v4_la_CPPFLAGS = $(AM_CPPFLAGS) -DLS_CPU_LEVEL=4
libls_cpu_v4_la_CFLAGS = $(ls_cpu_cflags)

lockstep_cpu_la_SOURCES = plugins/cpu/cpu.c plugins/cpu/cpu.h plugins/cpu/onednn.c \
	plugins/cpu/onednn.h
lockstep_cpu_la_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) $(DNNL_CFLAGS) -fvisibility=hidden
lockstep_cpu_la_LDFLAGS = $(AM_LDFLAGS) $(OPENMP_CFLAGS) -module -avoid-version -shared \
	-export-symbols-regex '^ls_device_entry$$'
lockstep_cpu_la_LIBADD = libls_cpu_v0.la libls_cpu_v3.la libls_cpu_v4.la libls_base.la \
	$(DNNL_LIBS) -lm

# `make benchmarks/cpu_ops`: where a training step spends its time; see README.md.
EXTRA_PROGRAMS += benchmarks/cpu_ops
benchmarks_cpu_ops_SOURCES = benchmarks/cpu_ops.c
benchmarks_cpu_ops_LDADD = libls_device.la libls_base.la -lm
CLEANFILES += benchmarks/cpu_ops
endif
EXTRA_DIST += plugins/cpu/README.md
