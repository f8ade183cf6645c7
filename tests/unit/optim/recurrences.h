// The textbook formula of each update rule for one element. Tests compare the kernels with it.
// Needs no LibTorch.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace muster::recurrences {

// One element of a parameter (p) with its slots (a, b, c) and its number of updates (t).
struct Element {
  double p = 0, a = 0, b = 0, c = 0;
  int t = 0;
};
struct Case {
  const char* name;
  const char* spec;
  std::function<void(Element&, double g, double lr)> step;
  double initial_a = 0;
};

inline void AdamStep(Element& e, double g, double lr, bool amsgrad) {
  ++e.t;
  e.a = 0.8 * e.a + 0.2 * g;
  e.b = 0.95 * e.b + 0.05 * g * g;
  e.c = std::max(e.c, e.b);
  const double v = (amsgrad ? e.c : e.b) / (1 - std::pow(0.95, e.t));
  e.p -= lr * (e.a / (1 - std::pow(0.8, e.t))) / (std::sqrt(v) + 1e-3);
}

inline void FtrlStep(Element& e, double g, double lr) {
  const double grown = e.a + g * g;
  e.b += g + 2 * 0.03 * e.p - (std::sqrt(grown) - std::sqrt(e.a)) / lr * e.p;
  const double quadratic = std::sqrt(grown) / lr + 2 * (0.02 + 0.1 / (2 * lr));
  e.p = (std::clamp(e.b, -0.01, 0.01) - e.b) / quadratic;
  e.a = grown;
}

inline const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"Sgd", R"("sgd")", [](Element& e, double g, double lr) { e.p -= lr * g; }},
      {"SgdDecay", R"({"name": "sgd", "weight_decay": 0.1})",
       [](Element& e, double g, double lr) { e.p -= lr * (g + 0.1 * e.p); }},
      {"Momentum", R"({"name": "sgd", "momentum": 0.9})",
       [](Element& e, double g, double lr) {
         e.a = 0.9 * e.a + g;
         e.p -= lr * e.a;
       }},
      {"Nesterov", R"({"name": "sgd", "momentum": 0.9, "nesterov": true, "weight_decay": 0.01})",
       [](Element& e, double g, double lr) {
         g += 0.01 * e.p;
         e.a = 0.9 * e.a + g;
         e.p -= lr * (g + 0.9 * e.a);
       }},
      {"Adam", R"({"name": "adam", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3})",
       [](Element& e, double g, double lr) { AdamStep(e, g, lr, false); }},
      {"AdamDecay",
       R"({"name": "adam", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.1})",
       [](Element& e, double g, double lr) { AdamStep(e, g + 0.1 * e.p, lr, false); }},
      {"Amsgrad",
       R"({"name": "adam", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "amsgrad": true})",
       [](Element& e, double g, double lr) { AdamStep(e, g, lr, true); }},
      {"AdamW",
       R"({"name": "adamw", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.1})",
       [](Element& e, double g, double lr) {
         e.p -= lr * 0.1 * e.p;
         AdamStep(e, g, lr, false);
       }},
      {"Adagrad", R"({"name": "adagrad", "epsilon": 1e-3})",
       [](Element& e, double g, double lr) {
         e.a += g * g;
         e.p -= lr * g / (std::sqrt(e.a) + 1e-3);
       },
       0.1},
      {"RmsProp", R"({"name": "rmsprop", "rho": 0.8, "epsilon": 1e-3, "weight_decay": 0.1})",
       [](Element& e, double g, double lr) {
         g += 0.1 * e.p;
         e.a = 0.8 * e.a + 0.2 * g * g;
         e.p -= lr * g / (std::sqrt(e.a) + 1e-3);
       }},
      {"RmsPropCentered",
       R"({"name": "rmsprop", "rho": 0.8, "epsilon": 1e-3, "centered": true, "momentum": 0.5})",
       [](Element& e, double g, double lr) {
         e.a = 0.8 * e.a + 0.2 * g * g;
         e.b = 0.8 * e.b + 0.2 * g;
         e.c = 0.5 * e.c + g / (std::sqrt(std::max(0.0, e.a - e.b * e.b)) + 1e-3);
         e.p -= lr * e.c;
       }},
      {"Ftrl", R"({"name": "ftrl", "l1": 0.01, "l2": 0.02, "l2_shrinkage": 0.03, "beta": 0.1})",
       [](Element& e, double g, double lr) { FtrlStep(e, g, lr); }, 0.1},
  };
  return cases;
}

}  // namespace muster::recurrences
