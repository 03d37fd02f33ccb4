# The SPANK plugin: built where Slurm's headers are, for that version of Slurm.
spank_sources = plugins/spank/plugin.h plugins/spank/args.c plugins/spank/options.c plugins/spank/gpus.c \
	plugins/spank/gpus.h
if LS_SLURM
slurmexec_LTLIBRARIES += spank_lockstep.la
spank_lockstep_la_SOURCES = plugins/spank/spank_lockstep.c plugins/spank/submit.c plugins/spank/remote.c \
	plugins/spank/limits.c plugins/spank/slurmd.c $(spank_sources)
spank_lockstep_la_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS) -I$(top_srcdir)/plugins \
	-DLS_SYSCONFDIR='"$(sysconfdir)"'
spank_lockstep_la_CFLAGS = $(AM_CFLAGS)
spank_lockstep_la_LDFLAGS = $(AM_LDFLAGS) -Wl,-z,noexecstack -module -avoid-version -shared \
	-export-symbols-regex '^(plugin_(name|type|version)|spank_plugin_version|slurm_spank_[a-z_]+)$$'
spank_lockstep_la_LIBADD = libls_topo.la libls_base.la

# Samples: nothing of the site's own is ever overwritten.
dist_pkgdata_DATA += plugins/spank/cli_filter.lua plugins/spank/lockstep-site.conf
plugstackdir = $(pkgdatadir)/plugstack.conf.d
plugstack_DATA = plugins/spank/lockstep.conf
plugins/spank/lockstep.conf: plugins/spank/plugstack.conf.in Makefile
	$(AM_V_GEN)$(MKDIR_P) plugins/spank && $(SED) -e 's|@pkgdatadir''@|$(pkgdatadir)|' \
	    -e 's|@slurmexecdir''@|$(slurmexecdir)|' '$(srcdir)/plugins/spank/plugstack.conf.in' >$@.tmp && \
	    mv $@.tmp $@
CLEANFILES += plugins/spank/lockstep.conf plugins/spank/lockstep.conf.tmp
endif
EXTRA_DIST += plugins/spank/plugstack.conf.in
EXTRA_DIST += plugins/spank/README.md
