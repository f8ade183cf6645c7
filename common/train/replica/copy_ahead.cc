#include "common/train/replica/copy_ahead.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "common/train/replica/devices/devices.h"
#include "common/train/replica/replica.h"

namespace muster {

CopyAhead::CopyAhead(at::Device device)
    : device_(device),
      stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

absl::Status CopyAhead::Start(data::LoadedBatch* batch) const {
  return CatchProgramErrors("copying a batch to the device", [&] {
    const c10::StreamGuard guard(stream_);
    for (at::Tensor& tensor : batch->batch) tensor = CopyToDevice(tensor, device_);
    auto copied = std::make_shared<c10::Event>(device_.type());
    copied->record(stream_);
    batch->prepared = std::move(copied);
  });
}

absl::Status CopyAhead::Finish(data::LoadedBatch* batch) const {
  if (batch->prepared == nullptr) return absl::OkStatus();
  return CatchProgramErrors("waiting for a batch's copy", [&] {
    const c10::impl::VirtualGuardImpl impl(device_.type());
    const c10::Stream current = impl.getStream(device_);
    static_cast<c10::Event*>(batch->prepared.get())->block(current);
    // The tensors' memory was allocated on the copy stream. This prevents its reuse before the
    // current stream has finished with it.
    for (const at::Tensor& tensor : batch->batch)
      impl.recordDataPtrOnStream(tensor.storage().data_ptr(), current);
    batch->prepared.reset();
  });
}

}  // namespace muster
