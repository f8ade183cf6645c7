// Creates the built-in programs. Each program has its own .cc file in this folder.
// examples/programs.cc maps the names in job files to these functions.
#pragma once

#include <muster/program.h>

#include <memory>

namespace muster {

std::unique_ptr<Program> MakeCycleGan();
std::unique_ptr<Program> MakeFashionMnist();
std::unique_ptr<Program> MakeImageClassifier();
std::unique_ptr<Program> MakeLanguageModel();
std::unique_ptr<Program> MakeLinear();
std::unique_ptr<Program> MakeMatrixFactorization();
std::unique_ptr<Program> MakeRecommender();

}  // namespace muster
