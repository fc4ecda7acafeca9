"""Networks as ONNX graphs."""
