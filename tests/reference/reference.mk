# Shared by the tests of the graph and of the backends; see README.md.
check_LTLIBRARIES += libls_ref.la
libls_ref_la_SOURCES = \
	tests/reference/kernels.h \
	tests/reference/kernels_backward.h \
	tests/reference/kernels_forward.h \
	tests/reference/kernels_ranks.h \
	tests/reference/kernels_update.h \
	tests/reference/naive.c \
	tests/reference/naive.h \
	tests/reference/naive_data.c \
	tests/reference/ref.h \
	tests/reference/ref_device.c \
	tests/reference/ref_f32.c \
	tests/reference/ref_f64.c

check_PROGRAMS += tests/reference/test_ref
TESTS += tests/reference/test_ref
tests_reference_test_ref_SOURCES = tests/reference/test_ref.c
tests_reference_test_ref_LDADD = libls_ref.la libls_graph.la libls_base.la -lm
EXTRA_DIST += tests/reference/README.md

include tests/cpu/step.mk
