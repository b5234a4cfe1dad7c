"""DroQ on Pendulum-v1 with its packaged config: train, evaluate, export."""

from _reference import run_reference

if __name__ == "__main__":
    run_reference("configs/droq/pendulum.yaml")
