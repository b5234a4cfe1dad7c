"""Agents outside this library: exported as ONNX, torch.export or numpy files, checked against the agent."""
