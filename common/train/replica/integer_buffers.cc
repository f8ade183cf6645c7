#include "common/train/replica/integer_buffers.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cstring>

namespace muster {

std::map<std::string, std::string> IntegerBuffersOf(const Replica& replica) {
  const at::NoGradGuard no_grad;
  std::map<std::string, std::string> all;
  for (const NamedModel& model : replica.models())
    for (const auto& [name, buffer] : model.buffers) {
      if (buffer.is_floating_point()) continue;
      const at::Tensor bytes = buffer.detach().to(at::kCPU).contiguous();
      all[model.name + "." + name] = {static_cast<const char*>(bytes.const_data_ptr()),
                                      bytes.nbytes()};
    }
  return all;
}

absl::Status SetIntegers(const std::map<std::string, std::string>& values, Replica* replica) {
  const at::NoGradGuard no_grad;
  size_t found = 0;
  for (const NamedModel& model : replica->models())
    for (const auto& [name, buffer] : model.buffers) {
      const auto value = values.find(model.name + "." + name);
      if (value == values.end() || buffer.is_floating_point()) continue;
      ++found;
      at::Tensor bytes = at::empty(buffer.sizes(), buffer.options().device(at::kCPU));
      if (value->second.size() != bytes.nbytes())
        return DataError(fmt::format("buffer {} came in {} bytes, it has {}", value->first,
                                     value->second.size(), bytes.nbytes()));
      if (bytes.nbytes() > 0)
        std::memcpy(bytes.mutable_data_ptr(), value->second.data(), bytes.nbytes());
      buffer.detach().copy_(bytes);
    }
  if (found != values.size())
    return DataError(
        fmt::format("{} of {} integer buffers are none of this program's: start all tasks with one "
                    "program",
                    values.size() - found, values.size()));
  return absl::OkStatus();
}

}  // namespace muster
