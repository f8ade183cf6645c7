// torch::nn's modules that most models are made of. <torch/torch.h> has all of them and much more,
// and takes twice as long to compile.
#pragma once

#include <ATen/TensorOperators.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
