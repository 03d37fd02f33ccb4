noinst_LTLIBRARIES += libls_check.la
libls_check_la_SOURCES = \
	src/check/check.h \
	src/check/cuda_api.h \
	src/check/gpu_kernel.h \
	src/check/internal.h \
	src/check/pairs.h \
	src/check/verbs.h \
	src/check/children.c \
	src/check/choice.c \
	src/check/compare.c \
	src/check/cuda_api.c \
	src/check/devices.c \
	src/check/environment.c \
	src/check/fabric.c \
	src/check/files.c \
	src/check/frame.c \
	src/check/gpu_compare.c \
	src/check/gpu_kernel.c \
	src/check/gpu_speed.c \
	src/check/gpus.c \
	src/check/limits.c \
	src/check/links.c \
	src/check/meet.c \
	src/check/names.c \
	src/check/pack.c \
	src/check/pairs.c \
	src/check/plan.c \
	src/check/ring.c \
	src/check/run.c \
	src/check/settings.c \
	src/check/table.c \
	src/check/verbs.c \
	src/check/verdict.c \
	src/check/versions.c
libls_check_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
EXTRA_DIST += src/check/README.md
