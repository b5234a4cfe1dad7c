"""DrQ on what Pendulum-v1 looks like, with its packaged config: train, evaluate, export."""

from _reference import run_reference

if __name__ == "__main__":
    run_reference("configs/drq/pendulum_pixels.yaml")
