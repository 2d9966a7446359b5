# Everything a newcomer needs: `make test`, `make demo`. The rest is for those who stay.
JOBS    ?= $(shell nproc)
SECONDS ?= 60
MINUTES ?= 60
# Tests wait for disks and servers half of their time.
CTEST   ?= scripts/with-tmpdir ctest -j$(shell expr $(JOBS) \* 2)
PASS    ?=
ENGINE  ?=
# GPU kernels: AUTO where a GPU is, ON, ALL (architectures), OFF; see docs/gpu.md.
CUDA    ?= AUTO
# Bytecode is cached in build/, even if the environment asks for none: importing torch without it takes twice as long.
export PYTHONDONTWRITEBYTECODE =
export PYTHONPYCACHEPREFIX = $(CURDIR)/build/pycache
NVCC    := $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
OTHER_ARCH := $(if $(filter x86_64,$(shell uname -m)),arm64,amd64)
# Of the wheel. For the other architecture it is built inside the sysroot: what is outside is not searched.
ARCH    ?= $(shell uname -m)
$(if $(filter-out x86_64 aarch64,$(ARCH)),$(error ARCH is x86_64 or aarch64))
CROSS   := $(filter-out $(shell uname -m),$(ARCH))
WHEEL   := build-$(if $(CROSS),emulated/sysroot/)wheel

.PHONY: help build test test-engines wheel deb docs demo bench crashtest campaign asan tsan sysroot emulated fuzz format tidy clean

help:    ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# In a folder of its own: what tests add (sync points, faults) is not in the program that people use.
build:   ## the library and build-program/deltawire
	@scripts/setup build
	@cmake --preset program -DDELTAWIRE_CUDA=$(CUDA) >/dev/null
	@cmake --build --preset program -j$(JOBS)

test:    ## build and run every test
	@scripts/setup build python test s3 && scripts/venv build/venv build
	@cmake --preset release -DDELTAWIRE_CUDA=$(CUDA) >/dev/null
	@scripts/venv build/venv & cmake --build --preset release -j$(JOBS) && wait
	@$(CTEST) --preset release || { scripts/failed-tests build; exit 1; }
	@scripts/pytest-totals build

test-engines:  ## live updates in real vLLM and SGLang servers, on the CPU, 8 GB in ~/.cache (PASS=-quick: fewer; ENGINE=vllm==0.29.0)
	@scripts/setup build python test engines && scripts/venv build/venv build
	@cmake --preset release -DDELTAWIRE_CUDA=$(CUDA) >/dev/null
	@cmake --build --preset release -j$(JOBS) --target deltawire_python deltawire_cli deltawire_package_cli
	@scripts/engines $(ENGINE) & scripts/venv build/venv && wait
	@ENGINE=$(ENGINE) tests/engines/run $(PASS)

wheel: export CMAKE_TOOLCHAIN_FILE := $(CROSS:%=$(CURDIR)/cmake/emulated.cmake)
wheel: $(CROSS:%=sysroot)  ## the Python package for every Linux with glibc 2.28 or newer, in build-wheel/dist (ARCH=aarch64: for that processor)
	@scripts/setup build python deb && scripts/venv $(WHEEL)/venv build wheel
	@scripts/portable $(WHEEL)/portable $(ARCH)
	@cmake --preset wheel -B $(WHEEL) -DDELTAWIRE_PORTABLE=$(CURDIR)/$(WHEEL)/portable \
	  -DDELTAWIRE_CUDA=$(if $(CROSS),OFF,$(if $(NVCC),ALL,OFF)) >/dev/null
	@cmake --build $(WHEEL) --target deltawire_wheel -j$(JOBS)
	@scripts/wheel $(WHEEL) build-wheel$(CROSS:%=-%)/dist

deb:     ## a Debian package of the program and the library, in build-program/
	@scripts/setup build deb
	@cmake --preset program -DDELTAWIRE_CUDA=$(CUDA) >/dev/null
	@cmake --build --preset program -j$(JOBS)
	@cd build-program && cpack -G DEB >/dev/null && ls *.deb

docs:    ## the documentation as a site with a search, in build-docs/site; broken links fail
	@scripts/setup python && scripts/venv build-docs/venv docs
	@NO_MKDOCS_2_WARNING=1 build-docs/venv/bin/mkdocs build

demo: build  ## a trainer, three replicas, a crash, the proof: under a minute
	@build-program/deltawire demo

bench: build  ## sizes and speeds of every codec on this machine
	@build-program/deltawire bench

crashtest:  ## kill everything at every sync point: a thousand deaths and more
	@scripts/setup build test
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j$(JOBS) --target deltawire_cli
	@tests/crash/crash_test.py build/deltawire --rounds 2 --at-least 1000
	@tests/crash/race_test.py build/deltawire

campaign:  ## attack everything in every way we know, with fresh seeds, for MINUTES=60; a table of what was found
	@scripts/setup build test && scripts/venv build/venv interop
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j$(JOBS) --target deltawire_cli
	@build/venv/bin/python tests/campaign/campaign.py build/deltawire --minutes $(MINUTES) \
	  --results bench/results/campaign-$$(uname -m).txt

asan tsan:  ## tests under AddressSanitizer + UBSan (PASS=-quick: fewer), or the threaded ones under ThreadSanitizer
	@scripts/setup build test s3 fuzz
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@ -j$(JOBS)
	@scripts/no-aslr $(CTEST) --preset $@$(PASS) || { scripts/failed-tests build-$@; exit 1; }

# The packages are those of `build` and `python`, less what is not used.
sysroot:
	@scripts/setup build test emulated
	@scripts/sysroot $(OTHER_ARCH) build-emulated/sysroot libhwy-dev libzstd-dev libxxhash-dev libssl-dev \
	  nlohmann-json3-dev libcli11-dev libfmt-dev libcpp-httplib-dev libexpat1-dev libgtest-dev python3-dev

emulated: sysroot  ## tests of kernels, codecs and digests for the other architecture, under emulation
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@ -j$(JOBS)
	@$(CTEST) --preset $@ || { scripts/failed-tests build-$@; exit 1; }

fuzz:    ## fuzz every target, SECONDS=60 in all (built by clang)
	@scripts/setup build test fuzz
	@cmake --preset asan >/dev/null
	@cmake --build --preset fuzz -j$(JOBS)
	@scripts/fuzz $(SECONDS)

format:  ## rewrite every source file in the house style
	@scripts/setup format
	@scripts/format

tidy:    ## clang-tidy over the library and the programs; slow, advice only
	@scripts/setup build test format
	@cmake --preset release >/dev/null
	@run-clang-tidy-14 -quiet -p build '/(src|cli|lab)/.*\.cpp$$'

clean:
	rm -rf build build-*
