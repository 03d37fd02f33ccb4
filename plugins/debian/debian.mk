# `make deb`: packages for this version of Slurm, in deb/; see README.md.
.PHONY: deb
deb: dist
	rm -rf deb && $(MKDIR_P) deb
	cd deb && tar xf '$(abs_builddir)/$(distdir).tar.gz' && cd '$(distdir)' && \
	cp -r plugins/debian debian && rm -f debian/README.md debian/debian.mk && \
	printf 'lockstep (%s) unstable; urgency=medium\n\n  * See the history of the source.\n\n -- Lockstep maintainers <root@localhost>  %s\n' \
	    "`echo '$(PACKAGE_VERSION)' | tr -c 'A-Za-z0-9.+~\n' +`" "`LC_ALL=C date -R`" >debian/changelog && \
	dpkg-buildpackage -b -us -uc
	rm -rf 'deb/$(distdir)'
	@ls deb/*.deb

clean-local: clean-deb
.PHONY: clean-deb
clean-deb:
	rm -rf deb
EXTRA_DIST += plugins/debian/README.md plugins/debian/control plugins/debian/copyright plugins/debian/rules \
	plugins/debian/lockstep.install plugins/debian/lockstep-slurm.install \
	plugins/debian/lockstep-slurmctld.install plugins/debian/source/format
