#include "common/push_pull/variable_messages.h"

namespace muster::push_pull {

VariableMessages ToMessages(const std::vector<VariableSpec>& variables) {
  VariableMessages messages;
  for (const VariableSpec& spec : variables) {
    proto::VariableMessage& message = *messages.Add();
    message.set_name(spec.name);
    message.mutable_shape()->Assign(spec.shape.begin(), spec.shape.end());
    message.set_optimizer(spec.optimizer);
    message.mutable_order()->Assign(spec.order.begin(), spec.order.end());
    message.set_together(spec.together);
    if (!spec.table) continue;
    message.mutable_table()->set_width(spec.table->width);
    message.mutable_table()->set_initializer(spec.table->initializer);
    message.mutable_table()->set_scale(spec.table->scale);
    message.mutable_table()->set_seed(spec.table->seed);
    message.mutable_table()->set_type(spec.table->type);
    message.mutable_table()->set_max_rows(spec.table->max_rows);
    message.mutable_table()->set_max_bytes(spec.table->max_bytes);
    message.mutable_table()->set_eviction(spec.table->eviction);
    message.mutable_table()->set_admit_after(spec.table->admit_after);
  }
  return messages;
}

std::vector<VariableSpec> SpecsOf(const VariableMessages& messages) {
  std::vector<VariableSpec> specs;
  for (const proto::VariableMessage& message : messages) {
    specs.push_back({message.name(),
                     {message.shape().begin(), message.shape().end()},
                     message.optimizer(),
                     {message.order().begin(), message.order().end()},
                     std::nullopt,
                     message.together()});
    const proto::TableMessage& table = message.table();
    if (message.has_table())
      specs.back().table = TableSpec{.width = table.width(),
                                     .initializer = table.initializer(),
                                     .scale = table.scale(),
                                     .seed = table.seed(),
                                     .type = table.type(),
                                     .max_rows = table.max_rows(),
                                     .max_bytes = table.max_bytes(),
                                     .eviction = table.eviction(),
                                     .admit_after = table.admit_after()};
  }
  return specs;
}

IntegerBuffers ChangedSince(const IntegerBuffers& before, const IntegerBuffers& now) {
  IntegerBuffers changed;
  for (const auto& [name, value] : now) {
    const auto found = before.find(name);
    if (found == before.end() || found->second != value) changed[name] = value;
  }
  return changed;
}

}  // namespace muster::push_pull
