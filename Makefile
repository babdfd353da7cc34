# Entry points for people and for CI. Everything here works in a clean clone, as root and as a plain user.

.PHONY: help run stop test deps clean install-library install-mpiio wheel package dist-test

help:
	@echo "make run    install what is missing, build, start a file system, mount it, try it out"
	@echo "make stop   stop what 'make run' started"
	@echo "make test   everything that CI checks"
	@echo "make install-library PREFIX=/usr/local   build and install libweft, weft.h, weft.pc and the library of 'weft preload'"
	@echo "make install-mpiio MPICC=mpicc PREFIX=/usr/local   the same, and MPI-IO for this MPI library over it"
	@echo "make wheel  build the Python package: a wheel in target/wheels"
	@echo "make package    a static binary, a Debian package and an OCI image in target/packages"
	@echo "make dist-test  install that package in a clean root of Debian and use it there (as root, with debootstrap)"
	@echo "make clean  stop, and remove the build and the demo's files"

run: deps
	@scripts/run-demo.sh

stop:
	@scripts/run-demo.sh stop

test: deps
	@scripts/test-all.sh

deps:
	@scripts/install-deps.sh

TARGET = $(or $(CARGO_TARGET_DIR),target)
wheel:
	cargo build --locked --profile dist -p weft-python
	@python3 gateways/python/wheel.py $(TARGET)/dist/libweft_python.so $(TARGET)/wheels

PREFIX ?= /usr/local
install-library:
	cargo build --locked --profile dist -p weft-capi -p weft-preload
	@scripts/install-library.sh $(TARGET)/dist $(PREFIX) $(DESTDIR)

MPICC ?= mpicc
install-mpiio: install-library
	@scripts/install-mpiio.sh $(MPICC) $(PREFIX) $(DESTDIR)

package: wheel
	@scripts/package.sh

dist-test:
	@scripts/dist-test.sh

clean:
	@scripts/run-demo.sh remove
	cargo clean
