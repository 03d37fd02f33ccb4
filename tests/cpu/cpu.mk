# The CPU backend through its interface, judged by the float64 reference.
if LS_CPU
ls_cpu_tests = tests/cpu/test_device tests/cpu/test_forward tests/cpu/test_image \
	tests/cpu/test_update tests/cpu/test_levels
check_PROGRAMS += $(ls_cpu_tests)
TESTS += $(ls_cpu_tests)
ls_cpu_harness = tests/cpu/op_case.c tests/cpu/op_case.h
tests_cpu_test_device_SOURCES = tests/cpu/test_device.c $(ls_cpu_harness)
tests_cpu_test_device_LDADD = libls_ref.la libls_device.la libls_graph.la libls_base.la -lm
tests_cpu_test_forward_SOURCES = tests/cpu/test_forward.c $(ls_cpu_harness)
tests_cpu_test_forward_LDADD = libls_ref.la libls_device.la libls_graph.la libls_base.la -lm
tests_cpu_test_image_SOURCES = tests/cpu/test_image.c $(ls_cpu_harness)
tests_cpu_test_image_LDADD = libls_ref.la libls_device.la libls_graph.la libls_base.la -lm
tests_cpu_test_update_SOURCES = tests/cpu/test_update.c $(ls_cpu_harness)
tests_cpu_test_update_LDADD = libls_ref.la libls_device.la libls_graph.la libls_base.la -lm
# The backend's own parts, to choose the instruction set.
tests_cpu_test_levels_SOURCES = tests/cpu/test_levels.c plugins/cpu/cpu.c plugins/cpu/onednn.c
tests_cpu_test_levels_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) $(DNNL_CFLAGS)
tests_cpu_test_levels_LDFLAGS = $(AM_LDFLAGS) $(OPENMP_CFLAGS)
tests_cpu_test_levels_LDADD = libls_cpu_v0.la libls_cpu_v3.la libls_cpu_v4.la libls_base.la \
	$(DNNL_LIBS) -lm
endif
