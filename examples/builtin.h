// The programs of this folder. Each has its own file. To add a program, also list it in
// programs.cc.
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
