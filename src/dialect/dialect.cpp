#include "dialect/dialect.h"

#include <algorithm>

#include "store/bodies.h"
#include "tensor/text.h"

namespace deltawire {

std::span<const Dialect* const> all_dialects() noexcept {
  static const std::vector<const Dialect*> dialects = {&slime_dialect(), &trl_dialect()};
  return dialects;
}

const Dialect* find_dialect(std::string_view name) noexcept {
  const auto dialects = all_dialects();
  const auto it = std::ranges::find(dialects, name, &Dialect::name);
  return it == dialects.end() ? nullptr : *it;
}

Status DraftOrder::next(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes) {
  const std::string tensor = "tensor " + quote(spec.name);
  if (next_ == draft_.tensors.size() || draft_.tensors[next_] != spec) {
    return invalid_argument(
        tensor + " is not the next of the draft" +
        (next_ == draft_.tensors.size() ? "" : ", " + quote(draft_.tensors[next_].name)));
  }
  DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(spec.dtype, spec.shape));
  if (new_bytes.size() != size || old_bytes.size() != (draft_.full ? 0 : size)) {
    return invalid_argument(tensor + " has " + std::to_string(size) + " bytes, got " +
                            std::to_string(old_bytes.size()) + " old and " +
                            std::to_string(new_bytes.size()) + " new ones");
  }
  ++next_;
  return {};
}

Status DraftOrder::check_all_added() const {
  if (next_ == draft_.tensors.size()) return {};
  return invalid_argument("tensor " + quote(draft_.tensors[next_].name) +
                          " of the draft was not added");
}

Status put_held(Store& store, const std::string& name, std::vector<HeldTensor> tensors,
                const Metadata& metadata) {
  std::ranges::sort(tensors, [](const HeldTensor& a, const HeldTensor& b) {
    const uint32_t bits_a = dtype_bits(a.spec.dtype), bits_b = dtype_bits(b.spec.dtype);
    return bits_a != bits_b ? bits_a > bits_b : a.spec.name < b.spec.name;
  });
  std::vector<TensorSpec> specs;
  std::vector<std::shared_ptr<const Body>> bodies(1);
  for (const HeldTensor& held : tensors) {
    specs.push_back(held.spec);
    bodies.push_back(std::make_shared<MemoryBody>(held.bytes));
  }
  DW_ASSIGN_OR_RETURN(std::string header, serialise_safetensors_header(specs, metadata));
  bodies[0] = OwnedBody::of(std::move(header));
  return store.put(name, JoinedBody(std::move(bodies)));
}

Result<const Dialect*> recognise_dialect(Store& store) {
  for (const Dialect* dialect : all_dialects()) {
    auto recognised = dialect->recognises(store);
    if (!recognised.ok()) return recognised.status();
    if (*recognised) return dialect;
  }
  return static_cast<const Dialect*>(nullptr);
}

}  // namespace deltawire
