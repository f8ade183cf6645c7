// Includes the modules of torch::nn that most models use. <torch/torch.h> includes all modules, but
// doubles the time to compile a source file.
#pragma once

#include <ATen/TensorOperators.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
