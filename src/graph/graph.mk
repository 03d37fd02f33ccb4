noinst_LTLIBRARIES += libls_graph.la
libls_graph_la_SOURCES = \
	src/graph/graph.h \
	src/graph/bucket.c \
	src/graph/compile.c \
	src/graph/differentiate.c \
	src/graph/dims.c \
	src/graph/dump.c \
	src/graph/evaluate.c \
	src/graph/exec.c \
	src/graph/fuse.c \
	src/graph/kinds.c \
	src/graph/layout.c \
	src/graph/optimize.c \
	src/graph/plan.c \
	src/graph/prog.c \
	src/graph/schedule.c \
	src/graph/verify.c
EXTRA_DIST += src/graph/README.md
