# `make demo` trains, exports and serves a small model; `make check test` is for changes.
PYTHON ?= $(shell command -v python3.11 || echo python3)
BIN := .venv/bin
INSTALL := $(BIN)/pip install --disable-pip-version-check --no-compile -c constraints.txt
DEMO ?= demo
SOAK_SECONDS ?= 60
FLOOD_SECONDS ?= 60
# Packages are compiled on their first use; without the compiled files, every process would compile them again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: included site pages figures setup conformance nginx helm chromium postgresql clients demo quality test reliability endurance evictions everything fetches floods fmt foreign fuzz check types lint contracts shape scripts measurements real-models capacity soak protos locks tables

setup: .venv/installed serve/native/libdragoman.so

# Installing compiles the library too; this is for later changes. Without a compiler there is none.
serve/native/libdragoman.so: serve/native/build.py $(wildcard serve/native/src/*/*) | .venv/installed
	-$(BIN)/python -m dragoman.serve.native.build

.venv/installed: .venv/trains
	$(INSTALL) -e '.[cpu,train,export,bench,peers,postgresql,mcp,pdf,tracing,dev,docs]'
	touch $@

# Installs the extras of `make demo` only, which is faster.
.venv/trains: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.[cpu,train,export]'
	touch $@

# Trains once; later calls only serve. ONESHOT=1 ends after the translations.
demo: $(DEMO)/verified
	$(BIN)/dragoman demo $(DEMO)/bundle $(if $(ONESHOT),--oneshot)

$(DEMO)/corpus/train.en: | .venv/trains
	$(BIN)/dragoman corpus --out $(DEMO)/corpus

$(DEMO)/run/done: | $(DEMO)/corpus/train.en
	$(BIN)/dragoman train --recipe demo --out $(DEMO)/run \
	  --data files:$(DEMO)/corpus/train.en,$(DEMO)/corpus/train.de \
	  --validation files:$(DEMO)/corpus/validation.en,$(DEMO)/corpus/validation.de

$(DEMO)/bundle/manifest.json: | $(DEMO)/run/done
	$(BIN)/dragoman export $(DEMO)/run --out $(DEMO)/bundle --name demo

$(DEMO)/verified: | $(DEMO)/bundle/manifest.json
	$(BIN)/dragoman verify $(DEMO)/bundle --run $(DEMO)/run \
	  --data files:$(DEMO)/corpus/test.en,$(DEMO)/corpus/test.de --sentences 500 --invariance-sentences 50
	touch $@

# Trains the included model from free text, 70 minutes on two cores, and goes on after an interruption: all text first,
# then also every ninth everyday sentence with word links. Each process of a training has a core of its own.
INCLUDED ?= build/included
LICENSES := Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT AND MPL-2.0 AND PostgreSQL
LANGUAGES := de fr cs
TEXT := $(INCLUDED)/text
sides = $(TEXT)/$(1).en-$(filter-out en,$(2) $(3)).$(2),$(TEXT)/$(1).en-$(filter-out en,$(2) $(3)).$(3)
directions = $(foreach language,$(LANGUAGES),files:$(call sides,$(1),en,$(language)) files:$(call sides,$(1),$(language),en))
linked = $(foreach language,$(LANGUAGES),\
  files:$(call sides,linked,en,$(language)),$(TEXT)/links.en-$(language) \
  files:$(call sides,linked,$(language),en),$(TEXT)/links.$(language)-en)
data_of = $(addprefix --data ,$(foreach role,$(1),$(call directions,train.$(role))))
five_times = $(foreach time,1 2 3 4 5,$(1))
ALL_TEXT = $(call data_of,messages help $(call five_times,everyday words words words words))
LINKS := $(foreach language,$(LANGUAGES),$(TEXT)/links.$(language)-en)
TRAIN_INCLUDED = OMP_NUM_THREADS=1 ONEDNN_PRIMITIVE_CACHE_CAPACITY=60000 nice -n 19 $(BIN)/dragoman train \
  $(addprefix --validation ,$(call directions,validation.everyday)) \
  --hardware.accelerator cpu --hardware.devices $(shell nproc) --hardware.strategy ddp
included: $(INCLUDED)/bundle/manifest.json

$(TEXT)/sources.yaml: | .venv/trains
	$(BIN)/dragoman corpus included --out $(TEXT)

$(INCLUDED)/run/done: | $(TEXT)/sources.yaml
	$(TRAIN_INCLUDED) --recipe included --out $(INCLUDED)/run $(ALL_TEXT)

$(LINKS): $(TEXT)/links.%-en: | $(INCLUDED)/run/done
	for side in en $*; do awk 'NR % 9 == 0' $(TEXT)/train.everyday.en-$*.$$side > $(TEXT)/linked.en-$*.$$side; done
	nice -n 19 $(BIN)/dragoman align $(INCLUDED)/run --both-ways --output $(TEXT)/links.en-$* --data files:$(call sides,linked,en,$*)
	sed --regexp-extended 's/([0-9]+)-([0-9]+)/\2-\1/g' $(TEXT)/links.en-$* > $@

$(INCLUDED)/guided/done: | $(LINKS)
	$(TRAIN_INCLUDED) --recipe included-guided --initial $(INCLUDED)/run --out $(INCLUDED)/guided \
	  $(addprefix --data ,$(call five_times,$(linked))) $(ALL_TEXT)

$(INCLUDED)/bundle/manifest.json: | $(INCLUDED)/guided/done
	$(BIN)/dragoman export $(INCLUDED)/guided --out $(INCLUDED)/bundle --name included --precision int8 --align 1:0 --beam-size 4 \
	  --description "everyday sentences and messages of programs" --license "$(LICENSES)"

# Serves a tiny model for the test suites of clients of DeepL and LibreTranslate; trains it once.
CONFORMANCE ?= build/conformance
CONFORMANCE_KEYS ?= any
PHRASES ?= tests/conformance/phrases.tsv
conformance: $(CONFORMANCE)/bundle/manifest.json
	$(BIN)/dragoman serve $(CONFORMANCE)/bundle --host 127.0.0.1 --alignments --state-dir $(CONFORMANCE)/state \
	  $(if $(CONFORMANCE_KEYS),--api-keys "$(CONFORMANCE_KEYS)")

$(CONFORMANCE)/bundle/manifest.json: $(PHRASES) tests/conformance/train.py tests/conformance/sentences.tsv | .venv/trains
	rm -rf $(CONFORMANCE)
	$(BIN)/python -m tests.conformance.train $(CONFORMANCE)/run $(CONFORMANCE)/bundle $(PHRASES)

# Requires that the demo model translates 97 % of the test sentences exactly.
quality: $(DEMO)/verified
	$(BIN)/dragoman evaluate $(DEMO)/bundle --data files:$(DEMO)/corpus/test.en,$(DEMO)/corpus/test.de --minimum-exact 0.97

# The tests of deploy/nginx need nginx.
nginx:
	tests/unpack_nginx.sh .nginx

# The tests of deploy/chart need helm.
helm: setup
	tests/unpack_helm.sh .helm $(CURDIR)/$(BIN)/python

# The tests of the page need a browser.
chromium:
	tests/install_chromium.sh

# The tests of many servers with one database need PostgreSQL.
postgresql:
	tests/install_postgresql.sh

# Further clients of LibreTranslate and DeepL, for tests that run them.
clients: setup
	tests/install_clients.sh .clients $(CURDIR)/$(BIN)/python

# Checks the types of the page's scripts.
TYPESCRIPT ?= 7.0.2
.node/node_modules/.bin/tsc:
	npm install --no-audit --no-fund --no-save --prefix .node typescript@$(TYPESCRIPT)

# Three processes for two CPUs, because tests also wait. The tests of a file run in one process: they share slow fixtures.
PROCESSES := $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 )))
test: setup nginx helm chromium postgresql clients
	PATH="$$PATH:$(CURDIR)/.nginx/usr/sbin" $(BIN)/pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder

# Tests the promises of docs/reliability.md with all rounds, and fills in its table.
reliability: setup nginx
	PATH="$$PATH:$(CURDIR)/.nginx/usr/sbin" $(BIN)/pytest tests -m promise --thorough --soak-seconds=$(SOAK_SECONDS) --flood-seconds=$(FLOOD_SECONDS) --timeout=0 --promises=docs/reliability.md

# The same for the soak with fake models only; SOAK_SECONDS=3600 runs for an hour.
endurance: setup
	$(BIN)/pytest tests/reliability/test_soak.py --soak-seconds=$(SOAK_SECONDS) --timeout=0 --promises=-

# Twenty models that leave and return under load; SOAK_SECONDS=600 runs for ten minutes.
evictions: setup
	$(BIN)/pytest -s tests/reliability/test_evictions.py --soak-seconds=$(SOAK_SECONDS) --timeout=0 --promises=-

# A service with everything on, that clients attack and whose processes die; SOAK_SECONDS=7200 runs for two hours.
everything: setup
	$(BIN)/pytest -s tests/reliability/test_everything.py --soak-seconds=$(SOAK_SECONDS) --timeout=0 --promises=-

# Models that a server fetches from a hub on this machine: pairs of public sizes, a hundred clients; prints figures.
fetches: setup
	$(BIN)/pytest -s tests/reliability/test_fetches.py --thorough --timeout=0 --promises=-

# The same for the floods; one takes twice FLOOD_SECONDS or less.
floods: setup
	$(BIN)/pytest tests/reliability/test_floods.py --thorough --flood-seconds=$(FLOOD_SECONDS) --timeout=0 --promises=-

# Searches with libFuzzer for bytes that break a reader; build/fuzz keeps findings. Needs clang, which Debian's packages have.
FUZZ_SECONDS ?= 60
fuzz: setup
	$(INSTALL) atheris
	fuzz/unpack_clang.sh .clang
	PATH="$$PATH:$(CURDIR)/.clang" fuzz/run.sh $(FUZZ_SECONDS)

# `make -j2 check` checks types beside the rest.
check: types lint contracts shape scripts

types: setup
	$(BIN)/mypy

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python .ci/words.py
	$(BIN)/python .ci/measured.py

contracts: setup
	$(BIN)/lint-imports --no-logo

shape: setup
	$(BIN)/python .ci/figures.py --check

scripts: .node/node_modules/.bin/tsc
	.node/node_modules/.bin/tsc --project serve/page/jsconfig.json

# Files, lines, import contracts and the path of a request through the code.
figures: setup
	$(BIN)/python .ci/figures.py

fmt: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Measures what docs/measurements states and fills in its tables, on a quiet machine; a later call continues. Takes 90 minutes;
# ONLY="offline service" measures these, by their names in benchmarks/measurements.yaml.
measurements: setup
	$(BIN)/python -m benchmarks.measurements $(ONLY)

# Proves public models, one of each kind; needs a network. ALL=1 adds large ones, without limits of time and size.
real-models: setup
	$(BIN)/python -m benchmarks.real_models $(if $(ALL),--all)

# Reads and writes files of other programs, which FOREIGN keeps: those of Debian packages, those that writers at hand make.
# LibreOffice, Calibre, Gnumeric and pandoc make files if they are installed.
FOREIGN ?= build/foreign
foreign: setup
	$(BIN)/python -m tests.foreign.files $(FOREIGN)
	DRAGOMAN_FOREIGN=$(abspath $(FOREIGN)) $(BIN)/pytest tests/foreign --capture=no

# Measures the latency at 100 requests per second and the capacity; demo/load/load.html has plots.
capacity: setup $(DEMO)/verified
	$(BIN)/dragoman serve $(DEMO)/bundle --lame-duck-seconds 0 & trap "kill $$!" EXIT; \
	  curl --silent --fail --retry 60 --retry-connrefused --retry-delay 1 http://127.0.0.1:8000/readyz && \
	  $(BIN)/dragoman load --protocol grpc,rest --rate 100 --out $(DEMO)/load && \
	  $(BIN)/dragoman load --find-capacity --rate 100 --out $(DEMO)/capacity

# An hour of valid and invalid requests, killed clients and replaced models; SECONDS=60 is shorter.
soak: setup $(DEMO)/verified
	$(BIN)/dragoman load soak $(DEMO)/bundle --duration-seconds $(or $(SECONDS),3600)

# Writes what derives from the table of search options (a C++ header, a gRPC message, a table of docs/api.md), and the
# tables of limits in docs/security.md and docs/configuration.md, and the completions of shells.
tables: setup
	$(BIN)/python .ci/options.py
	$(BIN)/python .ci/limits.py
	$(BIN)/python .ci/completion.py
	$(MAKE) protos

protos: setup
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m grpc_tools.protoc -I. \
	  -I$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") \
	  --python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. protos/translation.proto protos/inference.proto
	sed -i 's/^from protos /from dragoman.protos /' protos/*_pb2_grpc.py*
	sed -i "s/^from protos /from dragoman.protos /; s/'protos\.\(\w*\)'/'dragoman.protos.\1'/" protos/*_pb2*.py*

# The pages as a site with search, in build/site; a dead link or a page without a place in mkdocs.yml fails it.
site: .venv/site
	$(BIN)/mkdocs build --strict

# The site of this version on the local branch gh-pages, next to those of older versions.
pages: .venv/site
	PATH=$(CURDIR)/$(BIN):$$PATH mike deploy --update-aliases $$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) latest
	$(BIN)/mike set-default latest

.venv/site: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.[docs]'
	touch $@

LOCK = $(BIN)/pip-compile --quiet --generate-hashes --no-header --no-annotate --strip-extras --allow-unsafe \
  --no-emit-index-url --no-emit-find-links --constraint constraints.txt
# Hashes of every file that the images may install, in the versions of constraints.txt.
locks: setup
	for set in "cpu tracing postgresql pdf" "cuda tracing postgresql pdf"; do \
	  $(BIN)/python deploy/requirements.py $$set | $(LOCK) --output-file deploy/locks/$${set%% *}.txt -; done
	echo hatchling ziglang | tr ' ' '\n' | $(LOCK) --output-file deploy/locks/build.txt -
