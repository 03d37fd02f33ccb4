# The CPU backend through its interface, judged by the float64 reference.
if LS_CPU
ls_cpu_tests = tests/cpu/test_device tests/cpu/test_forward tests/cpu/test_image \
	tests/cpu/test_update
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
endif
