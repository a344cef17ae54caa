"""From trained folders to what is released: unpacked, averaged, packed, exported to ONNX."""
