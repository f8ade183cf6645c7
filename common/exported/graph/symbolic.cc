#include "common/exported/graph/symbolic.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <map>

namespace muster::exported {
namespace {

using c10::IValue;
using Operands = std::vector<IValue>;

double Real(const IValue& value) {
  return value.isDouble() ? value.toDouble()
         : value.isBool() ? static_cast<double>(value.toBool())
                          : static_cast<double>(value.toInt());
}
int64_t Whole(const IValue& value) {
  return value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt();
}
bool Truth(const IValue& value) { return Real(value) != 0; }
bool IsReal(const Operands& operands) {
  for (const IValue& operand : operands) {
    if (operand.isDouble()) return true;
  }
  return false;
}
// Converts a real number as Python's int() does.
int64_t ToInt(double value) {
  TORCH_CHECK(std::isfinite(value) && std::abs(value) < 9.2e18, value, " does not fit in an int");
  return static_cast<int64_t>(value);
}

int64_t Checked(bool overflowed, int64_t value) {
  TORCH_CHECK(!overflowed, "a size does not fit in 64 bits");
  return value;
}

int64_t Opposite(int64_t value) {
  int64_t out;
  const bool overflowed = __builtin_sub_overflow(int64_t{0}, value, &out);
  return Checked(overflowed, out);
}

IValue Add(const Operands& v) {
  if (IsReal(v)) return Real(v[0]) + Real(v[1]);
  int64_t out;
  const bool overflowed = __builtin_add_overflow(Whole(v[0]), Whole(v[1]), &out);
  return Checked(overflowed, out);
}
IValue Subtract(const Operands& v) {
  if (IsReal(v)) return Real(v[0]) - Real(v[1]);
  int64_t out;
  const bool overflowed = __builtin_sub_overflow(Whole(v[0]), Whole(v[1]), &out);
  return Checked(overflowed, out);
}
IValue Multiply(const Operands& v) {
  if (IsReal(v)) return Real(v[0]) * Real(v[1]);
  int64_t out;
  const bool overflowed = __builtin_mul_overflow(Whole(v[0]), Whole(v[1]), &out);
  return Checked(overflowed, out);
}
// Rounds towards minus infinity. A remainder has the divisor's sign.
IValue FloorDivide(const Operands& v) {
  TORCH_CHECK(Truth(v[1]), "division of ", v[0], " by zero");
  if (IsReal(v)) return std::floor(Real(v[0]) / Real(v[1]));
  const int64_t a = Whole(v[0]), b = Whole(v[1]);
  if (b == -1)
    // Reports the overflow of the least integer, which has no opposite. A division would not report
    // it.
    return Opposite(a);
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
IValue Modulo(const Operands& v) {
  TORCH_CHECK(Truth(v[1]), "division of ", v[0], " by zero");
  if (IsReal(v)) {
    const double a = Real(v[0]), b = Real(v[1]), rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
  const int64_t a = Whole(v[0]), b = Whole(v[1]), rest = b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
IValue TrueDivide(const Operands& v) {
  TORCH_CHECK(Truth(v[1]), "division of ", v[0], " by zero");
  return Real(v[0]) / Real(v[1]);
}
IValue Power(const Operands& v) {
  if (IsReal(v) || Whole(v[1]) < 0) return std::pow(Real(v[0]), Real(v[1]));
  int64_t out = 1, square = Whole(v[0]);
  // `squared` is false after an overflow of `square`.
  bool overflowed = false, squared = true;
  for (int64_t left = Whole(v[1]); left > 0; left >>= 1) {
    if ((left & 1) != 0) overflowed |= !squared || __builtin_mul_overflow(out, square, &out);
    squared = squared && !__builtin_mul_overflow(square, square, &square);
  }
  return Checked(overflowed, out);
}
IValue Negative(const Operands& v) {
  return v[0].isDouble() ? IValue(-Real(v[0])) : Opposite(Whole(v[0]));
}
IValue Positive(const Operands& v) { return v[0].isBool() ? IValue(Whole(v[0])) : v[0]; }
IValue Equal(const Operands& v) { return Real(v[0]) == Real(v[1]); }
IValue NotEqual(const Operands& v) { return Real(v[0]) != Real(v[1]); }
IValue Less(const Operands& v) { return Real(v[0]) < Real(v[1]); }
IValue LessEqual(const Operands& v) { return Real(v[0]) <= Real(v[1]); }
IValue Greater(const Operands& v) { return Real(v[0]) > Real(v[1]); }
IValue GreaterEqual(const Operands& v) { return Real(v[0]) >= Real(v[1]); }
bool Both(const Operands& v) { return v[0].isBool() && v[1].isBool(); }
IValue And(const Operands& v) {
  return Both(v) ? IValue(v[0].toBool() && v[1].toBool()) : IValue(Whole(v[0]) & Whole(v[1]));
}
IValue Or(const Operands& v) {
  return Both(v) ? IValue(v[0].toBool() || v[1].toBool()) : IValue(Whole(v[0]) | Whole(v[1]));
}
int64_t Shift(const IValue& by) {
  TORCH_CHECK(Whole(by) >= 0 && Whole(by) < 63, "a shift by ", by, " bits");
  return Whole(by);
}
IValue ShiftLeft(const Operands& v) { return Multiply({v[0], IValue(int64_t{1} << Shift(v[1]))}); }
IValue ShiftRight(const Operands& v) { return Whole(v[0]) >> Shift(v[1]); }
IValue Truncate(const Operands& v) { return v[0].isDouble() ? ToInt(Real(v[0])) : Whole(v[0]); }
IValue Floor(const Operands& v) {
  return v[0].isDouble() ? ToInt(std::floor(Real(v[0]))) : Whole(v[0]);
}
IValue Ceil(const Operands& v) {
  return v[0].isDouble() ? ToInt(std::ceil(Real(v[0]))) : Whole(v[0]);
}
IValue ToReal(const Operands& v) { return Real(v[0]); }
IValue Not(const Operands& v) { return !Truth(v[0]); }
IValue Choose(const Operands& v) { return Truth(v[0]) ? v[1] : v[2]; }
IValue Max(const Operands& v) {
  if (IsReal(v)) return std::fmax(Real(v[0]), Real(v[1]));
  return std::max(Whole(v[0]), Whole(v[1]));
}
IValue Min(const Operands& v) {
  if (IsReal(v)) return std::fmin(Real(v[0]), Real(v[1]));
  return std::min(Whole(v[0]), Whole(v[1]));
}
IValue SquareRoot(const Operands& v) {
  TORCH_CHECK(Real(v[0]) >= 0, "the square root of ", v[0]);
  return std::sqrt(Real(v[0]));
}

}  // namespace

Symbolic FindSymbolic(const std::string& target) {
  static const std::map<std::string, Symbolic> kFunctions = {
      {"_operator.add", {Add, 2}},
      {"_operator.sub", {Subtract, 2}},
      {"_operator.mul", {Multiply, 2}},
      {"_operator.floordiv", {FloorDivide, 2}},
      {"_operator.mod", {Modulo, 2}},
      {"_operator.truediv", {TrueDivide, 2}},
      {"_operator.pow", {Power, 2}},
      {"_operator.neg", {Negative, 1}},
      {"_operator.pos", {Positive, 1}},
      {"_operator.eq", {Equal, 2}},
      {"_operator.ne", {NotEqual, 2}},
      {"_operator.lt", {Less, 2}},
      {"_operator.le", {LessEqual, 2}},
      {"_operator.gt", {Greater, 2}},
      {"_operator.ge", {GreaterEqual, 2}},
      {"_operator.and_", {And, 2}},
      {"_operator.or_", {Or, 2}},
      {"_operator.lshift", {ShiftLeft, 2}},
      {"_operator.rshift", {ShiftRight, 2}},
      {"math.trunc", {Truncate, 1}},
      {"math.floor", {Floor, 1}},
      {"math.ceil", {Ceil, 1}},
      {"torch.sym_int", {Truncate, 1}},
      {"torch.sym_float", {ToReal, 1}},
      {"torch.sym_not", {Not, 1}},
      {"torch.sym_ite", {Choose, 3}},
      {"torch.sym_max", {Max, 2}},
      {"torch.sym_min", {Min, 2}},
      {"torch.sym_sqrt", {SquareRoot, 1}},
  };
  const auto found = kFunctions.find(target);
  return found == kFunctions.end() ? Symbolic{} : found->second;
}

}  // namespace muster::exported
