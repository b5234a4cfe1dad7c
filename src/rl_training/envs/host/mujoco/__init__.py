"""Gymnasium's MuJoCo tasks stepped by threads of one process, with Gymnasium's results bit for bit."""
