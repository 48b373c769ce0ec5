# A memory aid: each target calls a preset or a script. `make` alone lists them.
.PHONY: help demo test asan tsan fuzz cov lint format golden docs bench wheel soak gpu setup
help: ; @sed -nE 's,^([a-z]+):.* [#]# (.*),\1\t\2,p' Makefile | expand -t 10
demo: setup ; scripts/demo ## a real computation on the OpenCL device, profiled
test: setup ; scripts/check dev ## everything built with -Werror, every test
asan: setup ; scripts/check asan ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
tsan: setup ; scripts/check tsan ## the tests under ThreadSanitizer
fuzz: ; scripts/setup lint && scripts/fuzz ## each fuzz target for 60 s
cov: setup ; scripts/check cov && scripts/coverage.sh ## lines that the tests run
lint: ; scripts/setup lint && scripts/lint ## every linter
format: ; git ls-files '*.c' '*.h' | xargs clang-format -i ## clang-format, in place
golden: setup ; scripts/golden ## rewrite the expected outputs, then see git diff
docs: setup ; .venv/bin/python scripts/gen_reference.py ## rewrite docs/reference.md
bench: setup ; bench/run ## costs, each as a ratio to its floor in the same run
wheel: setup ; .venv/bin/python -m pip wheel --no-deps -w dist . ## a wheel in dist/
soak: setup ; scripts/soak ## a long run, looking for growth
gpu: ; scripts/gpu-check ## the GPU tests, on a machine with an NVIDIA GPU
setup: ; @scripts/setup ## install what is missing
