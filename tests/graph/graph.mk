# Programs, passes and ls_exec, judged by tests/reference (whose library comes later in the build).
ls_graph_drivers = \
	tests/graph/drive.c \
	tests/graph/drive.h \
	tests/graph/jobs.c \
	tests/graph/jobs.h \
	tests/graph/programs.c \
	tests/graph/programs.h
ls_graph_judges = libls_ref.la libls_model.la libls_graph.la libls_base.la -lm

check_PROGRAMS += tests/graph/test_dump tests/graph/test_grad tests/graph/test_passes tests/graph/test_shard
TESTS += tests/graph/test_dump tests/graph/test_grad tests/graph/test_passes tests/graph/test_shard
tests_graph_test_dump_SOURCES = tests/graph/test_dump.c $(ls_graph_drivers)
tests_graph_test_dump_LDADD = $(ls_graph_judges)
tests_graph_test_grad_SOURCES = tests/graph/test_grad.c $(ls_graph_drivers)
tests_graph_test_grad_LDADD = $(ls_graph_judges)
tests_graph_test_passes_SOURCES = tests/graph/test_passes.c $(ls_graph_drivers)
tests_graph_test_passes_LDADD = $(ls_graph_judges)
tests_graph_test_shard_SOURCES = tests/graph/test_shard.c tests/graph/ranks.c tests/graph/ranks.h \
	tests/reference/world.c tests/reference/world.h $(ls_graph_drivers)
tests_graph_test_shard_LDADD = $(ls_graph_judges) -lpthread

dist_check_SCRIPTS += tests/graph/mutants.sh
# It compiles its mutants itself, with flags of its own.
plain_tests += tests/graph/mutants.sh
EXTRA_DIST += tests/graph/golden/convnet-0-build.txt
EXTRA_DIST += tests/graph/golden/convnet-1-differentiate.txt
EXTRA_DIST += tests/graph/golden/convnet-2-evaluate.txt
EXTRA_DIST += tests/graph/golden/convnet-3-bucket.txt
EXTRA_DIST += tests/graph/golden/convnet-4-optimize.txt
EXTRA_DIST += tests/graph/golden/convnet-5-shard.txt
EXTRA_DIST += tests/graph/golden/convnet-6-fuse.txt
EXTRA_DIST += tests/graph/golden/convnet-7-layout.txt
EXTRA_DIST += tests/graph/golden/convnet-8-schedule.txt
EXTRA_DIST += tests/graph/golden/convnet-9-plan.txt
EXTRA_DIST += tests/graph/golden/mlp-0-build.txt
EXTRA_DIST += tests/graph/golden/mlp-1-differentiate.txt
EXTRA_DIST += tests/graph/golden/mlp-2-evaluate.txt
EXTRA_DIST += tests/graph/golden/mlp-3-bucket.txt
EXTRA_DIST += tests/graph/golden/mlp-4-optimize.txt
EXTRA_DIST += tests/graph/golden/mlp-5-shard.txt
EXTRA_DIST += tests/graph/golden/mlp-6-fuse.txt
EXTRA_DIST += tests/graph/golden/mlp-7-layout.txt
EXTRA_DIST += tests/graph/golden/mlp-8-schedule.txt
EXTRA_DIST += tests/graph/golden/mlp-9-plan.txt
EXTRA_DIST += tests/graph/golden/mlp-data2-plan.txt
