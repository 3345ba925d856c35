"""What tests share: operators, kernels, fake devices, reports and projects, a module each."""
