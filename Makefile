PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart model release docs test test-slow test-all gpu integrations lowest python audit clean

## Install; search as a user does who has a wheel and no clone; then pretrain a small HMDE on the sample, evaluate it and
## the released one beside their baselines, and search with it from a fresh process.
quickstart: .venv/quickstart
	rm -rf runs/at-home runs/hmde-sample runs/hmde-sample-training
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target runs/at-home/packages .
	cp -r sample/docs runs/at-home/my-documents
	cd runs/at-home && PYTHONPATH=packages ../../$(BIN)/python -m hmde index my-documents my-index
	cd runs/at-home && PYTHONPATH=packages ../../$(BIN)/python -m hmde query my-index "Why does the tail of a comet point away from the Sun?"
	$(MAKE) model
	$(BIN)/python -m training.corpus --config configuration/corpora/sample.yaml
	$(BIN)/accelerate launch --config_file configuration/accelerate/one-device.yaml training/pretrain.py --config configuration/pretrain/sample.yaml
	$(BIN)/python -m evaluation --config configuration/evaluate/sample.yaml
	@# A folder and the Hugging Face libraries, this repository neither installed nor in reach.
	cp examples/search.py runs/hmde-sample-training/
	cd runs/hmde-sample-training && HF_HUB_OFFLINE=1 ../../$(BIN)/python -I -c "import runpy, sys; \
	    sys.path.remove('$(CURDIR)'); sys.argv[1:] = ['../hmde-sample', '../../sample/docs/ru.jsonl', \
	    'What makes the tail of a comet point away from the Sun?']; runpy.run_path('search.py', run_name='__main__')"

## The released model and its sentence encoder as folders, without a network: runs/hmde-small and runs/e5-small.
model: .venv/quickstart
	test -d runs/e5-small || $(BIN)/python -m hmde.release.e5 --output runs/e5-small
	test -d runs/hmde-small || $(BIN)/hmde model runs/hmde-small

## Train on articles of your own as the released model was trained, and upload the mean of the trainings: make release
## HUB=you/name ARTICLES=... LANGUAGES=... The same command goes on after an interruption.
release: .venv/quickstart
	@test -n "$(HUB)" -a -n "$(ARTICLES)" -a -n "$(LANGUAGES)" || \
	    { echo "name the repository, the articles and their languages: make release HUB=you/name ARTICLES=folder LANGUAGES='[en, fr]'"; exit 2; }
	test -d runs/e5-small || $(BIN)/python -m hmde.release.e5 --output runs/e5-small
	$(BIN)/python -m training.corpus --articles $(ARTICLES) --output runs/corpus --languages '$(LANGUAGES)' $(CORPUS)
	$(call train,e5-small,first-42) --seed 42 $(FIRST_STAGE)
	$(call train,e5-small,first-43) --seed 43 $(FIRST_STAGE)
	$(call train,e5-small-third-stage,last-42) --seed 42 --sentence_encoder $(RELEASE)/first-42 $(LAST_STAGE)
	$(call train,e5-small-third-stage,last-43) --seed 43 --sentence_encoder $(RELEASE)/first-43 $(LAST_STAGE)
	$(call mean,third,last-42 last-43)
	$(BIN)/python -m training.corpus --articles $(ARTICLES) --output runs/corpus-two-scales --languages '$(LANGUAGES)' $(TWO_SCALES)
	$(call train,e5-small-fourth-stage,fourth-46) --corpus runs/corpus-two-scales --seed 46 --sentence_encoder $(RELEASE)/third --keep last
	$(call train,e5-small-fourth-stage,fourth-47) --corpus runs/corpus --seed 47 --sentence_encoder $(RELEASE)/third --keep last --max_steps 40
	$(call mean,mean,third fourth-46 fourth-47) --max_sentences 2048
	rm -rf $(RELEASE)/rotated
	$(BIN)/python -m replications.hmde_small.rotate --model $(RELEASE)/mean --corpus runs/corpus --sizes '[]' --output $(RELEASE)/rotated --push_to_hub $(HUB)

RELEASE := runs/release
CORPUS := --min_sentences 10 --num_triples 12000 --pair_exponent 0
TWO_SCALES := --min_sentences 8 --num_triples 50000 --pair_exponent 0.5 --sentences_per_document 3
FIRST_STAGE := --epochs 2 --max_steps 32 --warmup_steps 4 --keep last
LAST_STAGE := --max_steps 24 --learning_rate 4e-5 --keep last
# Begins a command that trains RELEASE/$(2) by configuration $(1), and goes on from its last checkpoint if there is one.
train = $(BIN)/accelerate launch training/pretrain.py --config configuration/pretrain/$(1).yaml --corpus runs/corpus \
    --output $(RELEASE)/$(2) $$(ls -d $(RELEASE)/$(2)-training/checkpoints/step-* > /dev/null 2>&1 && echo --resume true)
# Begins commands that write to RELEASE/$(1) the mean of the models $(2) there, compared on the dev concepts.
mean = rm -rf $(RELEASE)/$(1) && $(BIN)/python -m training.average --models '[$(subst $(space),$(comma) ,$(addprefix $(RELEASE)/,$(2)))]' \
    --output $(RELEASE)/$(1) --corpus runs/corpus

## Install, lint, check types and imports, and run the tests: the fast tier, in five minutes on two cores. The tests of
## some files or folders, both tiers: make test FILES="tests/hmde/index".
test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@# Types are checked while the tests run.
	@$(BIN)/mypy & types=$$!; $(PYTEST) $(or $(FILES),-m "not slow and not fresh_environment"); tests=$$?; wait $$types && exit $$tests

## What proves again what the fast tier proves: other combinations, other papers, programs, exports.
test-slow: .venv/test
	$(PYTEST) -m "slow and not fresh_environment"

test-all: test test-slow

# One thread to each process that the tests start, or four of them fight for two cores. What a file of tests prepares is
# prepared once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

## The manual and the reference as a site: runs/site.
docs: .venv/test
	$(BIN)/mkdocs build --strict

## On a machine with a GPU: the tests that need one, and how fast documents are encoded.
gpu: .venv/test
	$(BIN)/pytest tests/gpu
	$(MAKE) model
	$(BIN)/python -m benchmarks.encode --config configuration/benchmarks/encode.yaml --output runs/gpu

comma := ,
space := $(subst ,, )

## Each library that a saved model drops into, in a new virtual environment with nothing else: slow, installs much. Then
## the clients of the server, and a browser on its page.
integrations: .venv/test
	$(BIN)/pytest -m fresh_environment -v tests/project/test_examples.py
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[integrations]'
	OMP_NUM_THREADS=1 $(BIN)/pytest -v tests/project/test_examples.py tests/hmde/server

## The lowest versions that pyproject.toml allows, except that of torch, in a virtual environment of its own; the tests of
## the model and of what stands on it pass with them. uv resolves them, which pip cannot.
lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet uv
	$(LOWEST)/bin/uv pip compile --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	    --constraint constraints.txt --extra dev --output-file $(LOWEST)/lowest.txt pyproject.toml
	$(LOWEST)/bin/pip install --quiet --constraint $(LOWEST)/lowest.txt --editable '.[dev]'
	OMP_NUM_THREADS=1 $(LOWEST)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder $(LOWEST_TESTS)

LOWEST := .venv-lowest
LOWEST_TESTS := tests/hmde tests/modeling_hmde tests/evaluation

## The fast tier of the tests with another Python that is installed: make python VERSION=3.13
python:
	@test -n "$(VERSION)" || { echo "name the version: make python VERSION=3.13"; exit 2; }
	test -x .venv-$(VERSION)/bin/python || python$(VERSION) -m venv .venv-$(VERSION)
	.venv-$(VERSION)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	OMP_NUM_THREADS=1 .venv-$(VERSION)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not fresh_environment"

## What the quickstart installs: known weaknesses, by a service of PyPI, and licences.
audit: .venv/quickstart
	test -x $(AUDIT)/bin/python || $(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet pip-audit pip-licenses
	$(AUDIT)/bin/pip-licenses --python $(BIN)/python --order license --summary
	$(AUDIT)/bin/pip-licenses --python $(BIN)/python --order license
	$(BIN)/pip freeze --exclude-editable | sed 's/ @ .*//; s/+cpu$$//' | grep == > $(AUDIT)/installed.txt
	$(AUDIT)/bin/pip-audit --strict --disable-pip --no-deps --progress-spinner off --requirement $(AUDIT)/installed.txt || \
	    { echo "not audited, or with weaknesses: pip-audit asks pypi.org, and the lines above say what it heard"; exit 1; }

AUDIT := .venv-audit

.venv/quickstart: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@# Not --quiet: it takes minutes, and says what it is at.
	$(BIN)/pip install --disable-pip-version-check --constraint constraints.txt --editable '.[train,eval,search,offline]'
	touch $@

.venv/test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-* runs
