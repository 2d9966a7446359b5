# Everything a newcomer needs: `make test`, `make demo`. The rest is for those who stay.
JOBS    ?= $(shell nproc)
SECONDS ?= 60
# Tests wait for disks and servers half of their time.
CTEST   ?= ctest -j$(shell expr $(JOBS) \* 3 / 2)
PASS    ?=

.PHONY: help build test wheel demo bench crashtest asan tsan fuzz format tidy clean

help:    ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build:   ## the library and build/deltawire
	@scripts/setup build
	@cmake --preset release -DDELTAWIRE_TESTS=OFF >/dev/null
	@cmake --build --preset release -j$(JOBS)

test:    ## build and run every test
	@scripts/setup build python test s3 && scripts/venv build/venv build
	@cmake --preset release >/dev/null
	@scripts/venv build/venv & cmake --build --preset release -j$(JOBS) && wait
	@$(CTEST) --preset release
	@scripts/pytest-totals build

wheel:   ## the Python package with all it needs, in build/wheel
	@scripts/setup build python && scripts/venv build/venv build wheel
	@cmake --preset release -DDELTAWIRE_TESTS=OFF >/dev/null
	@cmake --build --preset release -j$(JOBS)
	@scripts/wheel build build/wheel

demo: build  ## a trainer, three replicas, a crash, the proof: under a minute
	@build/deltawire demo

bench: build  ## sizes and speeds of every codec on this machine
	@build/deltawire bench

crashtest:  ## kill everything at every sync point: a thousand deaths and more
	@scripts/setup build test
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j$(JOBS) --target deltawire_cli
	@tests/crash/crash_test.py build/deltawire --rounds 2 --at-least 1000
	@tests/crash/race_test.py build/deltawire

asan tsan:  ## tests under AddressSanitizer + UBSan, or the threaded ones under ThreadSanitizer (PASS=-quick: fewer)
	@scripts/setup build test s3 fuzz
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@ -j$(JOBS)
	@scripts/no-aslr $(CTEST) --preset $@$(PASS)

fuzz:    ## fuzz every target, SECONDS=60 in all (built by clang)
	@scripts/setup build test fuzz
	@cmake --preset asan >/dev/null
	@cmake --build --preset fuzz -j$(JOBS)
	@scripts/fuzz $(SECONDS)

format:  ## rewrite every source file in the house style
	@scripts/setup format
	@scripts/format

tidy:    ## clang-tidy over the library and the CLI; slow, advice only
	@scripts/setup build test format
	@cmake --preset release >/dev/null
	@run-clang-tidy-14 -quiet -p build '/(src|cli)/.*\.cpp$$'

clean:
	rm -rf build build-asan build-tsan build-dev
