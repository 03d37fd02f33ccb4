noinst_LTLIBRARIES += libls_graph.la
libls_graph_la_SOURCES = \
	src/graph/graph.h \
	src/graph/bucket.c \
	src/graph/choose.c \
	src/graph/compile.c \
	src/graph/convert.c \
	src/graph/decompose.c \
	src/graph/differentiate.c \
	src/graph/dims.c \
	src/graph/dump.c \
	src/graph/evaluate.c \
	src/graph/exec.c \
	src/graph/exec.h \
	src/graph/exec_ranks.c \
	src/graph/fuse.c \
	src/graph/kinds.c \
	src/graph/layout.c \
	src/graph/optimize.c \
	src/graph/pipeline.c \
	src/graph/plan.c \
	src/graph/prog.c \
	src/graph/schedule.c \
	src/graph/shard.c \
	src/graph/shard.h \
	src/graph/verify.c
EXTRA_DIST += src/graph/README.md
