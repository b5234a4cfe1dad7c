# Everything runs in .venv, which the first target that needs it creates.
# Another interpreter: make setup PYTHON=python3.12

PYTHON ?= python3
VENV   ?= .venv
PEERS  ?= .venv-peers
D3RLPY ?= .venv-d3rlpy
TIANSHOU ?= .venv-tianshou
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
STUBS  := $(wildcard src/rl_training/*.pyi src/rl_training/*/*.pyi)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint wheel-test install-test stubs docs environments learn goals on-policy-learning on-policy-speed bench bench-dict bench-pixels bench-modern bench-gpu bench-kernels cost-growth bench-trials bench-disk bench-export repeat-gpu serve-load kill-campaign ray-campaign test-slurm tune-pendulum fuzz results-page clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## create .venv and install the package with its tools (once)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "rl_training needs Python 3.10 or newer; try make PYTHON=python3.11")'
	@echo "setup: installing into $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,mujoco,dmc,box2d,atari,offline,tensorboard,wandb,mlflow,pandas,figures,tune,ray,onnx,hub,docs]'
	@touch $@
	@echo "setup: done"

demo: $(STAMP) ## train DQN on CartPole, evaluate it, write a video and a report
	@$(BIN)/rl-training demo

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(BIN)/mypy $(wildcard $(STUBS:.pyi=.py)) # of these files mypy reads the stubs alone

test: $(STAMP) ## lint, tests and the wheel test (6 minutes on two cores)
	@$(MAKE) --no-print-directory -j2 lint wheel-test # each has use for one core
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=10

test-all: $(STAMP) ## the same proofs for every algorithm and environment, after make test (50 minutes)
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'sweep and not slow' --durations=10

wheel-test: $(STAMP) ## build the wheel and use it away from the checkout
	@PYTHON=$(BIN)/python scripts/wheel_smoke.sh

install-test: $(STAMP) ## install wheel and sdist into fresh environments with pip and use them (5 minutes; PYTHONS="python3.12 ...")
	$(BIN)/python scripts/install_check.py $(if $(PYTHONS),--python $(PYTHONS))

stubs: $(STAMP) ## write the stubs (*.pyi) that show type checkers what the registry exports
	$(BIN)/python scripts/stubs.py

docs: $(STAMP) ## write the generated pages of docs/, build the documentation in build/site and check its links
	$(BIN)/python scripts/sourcebook.py
	$(BIN)/python scripts/settings_page.py
	$(BIN)/python scripts/dependencies_page.py
	$(BIN)/python scripts/docs_site.py
	$(BIN)/python scripts/check_site.py

environments: $(STAMP) ## classify every environment that can be made here, write docs/environment-classes.md (10 minutes)
	$(BIN)/python scripts/classify_environments.py

learn: $(STAMP) ## the learning proofs (hours, on a GPU too), results in benchmarks/results
	$(BIN)/python benchmarks/learn.py all

goals: $(STAMP) ## success rates with and without hindsight relabelling (10 minutes), results in benchmarks/results
	$(BIN)/python benchmarks/goals.py all

on-policy-learning: $(STAMP) ## the learning proofs of PPO, A2C and PQN (hours; a GPU for Atari), results in benchmarks/results
	$(BIN)/python benchmarks/learn.py on-policy

on-policy-speed: $(STAMP) ## speed of PPO on a GPU: learning, and all on the device
	$(BIN)/python benchmarks/bench_on_policy.py

bench: $(STAMP) $(PEERS)/.installed $(D3RLPY)/.installed $(TIANSHOU)/.installed ## speed on these cores, taking turns with other libraries: docs/speed.md (20 to 60 minutes, resumed where it was stopped; QUICK=1: 5 minutes, to build/speed-quick.md)
	@mkdir -p build
	$(BIN)/python benchmarks/bench.py --peers $(PEERS)/bin/python --d3rlpy $(D3RLPY)/bin/python --tianshou $(TIANSHOU)/bin/python $(if $(QUICK),--quick --again --output build/speed-quick.json --page build/speed-quick.md)

bench-dict: $(STAMP) ## the cost of a Dict observation of one vector
	$(BIN)/python benchmarks/dict_cost.py --output benchmarks/results/dict-cost.json

bench-pixels: $(STAMP) ## updates of DrQ and DrQ-v2, taking turns with the same written plainly (DEVICE=cuda on a GPU)
	$(BIN)/python benchmarks/pixel_speed.py --device $(or $(DEVICE),cpu)

bench-modern: $(STAMP) ## updates of CrossQ, SimBa and FlashSAC on a GPU, taking turns with the same written plainly (4 minutes)
	$(BIN)/python benchmarks/modern_speed.py --device $(or $(DEVICE),cuda)

bench-gpu: $(STAMP) ## speed on a GPU, 1 to 64 seeds, and the share of its peak: docs/speed.md (4 minutes)
	$(BIN)/python benchmarks/bench_gpu.py

bench-kernels: $(STAMP) ## updates with other kernels by turns: compiled or eager, own matrix products or torch's (8 minutes; DEVICE=cuda: cost of determinism, 4)
	@for one in $(if $(filter cuda,$(DEVICE)),determinism,compile products narrow-products); do \
	  $(BIN)/python benchmarks/kernel_cost.py $$one || exit; done

cost-growth: $(STAMP) ## how cost grows with width, batch, update ratio, critics, seeds and environments: docs/speed.md (8 minutes; DEVICE=cuda: 4)
	$(BIN)/python benchmarks/cost_growth.py --device $(or $(DEVICE),cpu)

bench-trials: $(STAMP) ## a trial of 8 seeds against a trial of one, on a GPU (3 minutes; DEVICE=cpu without one)
	$(BIN)/python benchmarks/trial_cost.py --device $(or $(DEVICE),cuda)

bench-disk: $(STAMP) ## memory of the replay and of a long run, cost of a checkpoint and of having them
	$(BIN)/python benchmarks/memory.py --output benchmarks/results/memory.json
	$(BIN)/python benchmarks/checkpoint_cost.py --output benchmarks/results/checkpoint-cost.json
	$(BIN)/python benchmarks/checkpoint_overhead.py --output benchmarks/results/checkpoint-overhead.json

bench-export: $(STAMP) ## time for one observation: onnxruntime and predict by turns, every algorithm
	$(BIN)/python benchmarks/export_latency.py

$(PEERS)/.installed: constraints.txt
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch gymnasium mujoco imageio packaging stable-baselines3==2.9.2 sb3-contrib==2.9.2 sbx-rl==0.28.0
	@touch $@

$(D3RLPY)/.installed: constraints.txt
	@$(PYTHON) -m venv $(D3RLPY)
	@$(D3RLPY)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch gymnasium mujoco imageio packaging d3rlpy==2.8.0
	@touch $@

$(TIANSHOU)/.installed: constraints.txt
	@$(PYTHON) -m venv $(TIANSHOU)
	@grep -v '^pandas' constraints.txt > $(TIANSHOU)/constraints.txt # it needs pandas 2
	@$(TIANSHOU)/bin/python -m pip install -qq --disable-pip-version-check -c $(TIANSHOU)/constraints.txt torch gymnasium mujoco imageio packaging tianshou==2.0.1
	@touch $@

repeat-gpu: $(STAMP) ## five pairs of compiled runs on a GPU with fresh caches: equal weights
	$(BIN)/python scripts/repeat_compiled.py --output benchmarks/results/repeat-compiled.json

serve-load: $(STAMP) ## 200 requests in flight at a prediction server for a minute, result in benchmarks/results
	$(BIN)/python benchmarks/serve_load.py

kill-campaign: $(STAMP) ## 200 random kills of training over the algorithms: nothing lost, equal ends (10 minutes)
	$(BIN)/python scripts/kill_campaign.py

ray-campaign: $(STAMP) ## 30 kills of Ray workers and one of a node under a sweep of 24 runs: equal ends (10 minutes)
	$(BIN)/python scripts/ray_campaign.py

test-slurm: $(STAMP) ## a real Slurm on this machine (root; apt-get install slurm-wlm munge): jobs requeued and killed, equal ends
	$(BIN)/python scripts/slurm_campaign.py

tune-pendulum: $(STAMP) ## tune PPO on Pendulum, compare the best config with the packaged one on fresh seeds (15 minutes)
	$(BIN)/python benchmarks/tune_pendulum.py

fuzz: $(STAMP) ## load 5,000 mutated checkpoints and agents, 1,000 configs and 1,000 datasets, result in benchmarks/results
	$(BIN)/python scripts/fuzz.py

results-page: $(STAMP) ## benchmarks/results as one static page, build/results.html
	$(BIN)/python benchmarks/results_page.py

clean: ## remove .venv, caches and build products; runs/ stays
	rm -rf $(VENV) $(PEERS) $(D3RLPY) $(TIANSHOU) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
