// device/cuda.h where CUDA is not built in. src/CMakeLists.txt takes this or the folder cuda/.
#include "device/cuda.h"

#include "device/device_exchange.h"
#include "device/device_stage.h"
#include "device/fp8.h"
#include "device/whole.h"

namespace deltawire::cuda {
namespace {

Status absent() { return unsupported("this build has no CUDA"); }

}  // namespace

struct Context::Impl {};
struct DeviceSnapshot::Impl {};

Status available() { return absent(); }
std::optional<int> device_number(const void*) { return {}; }
Result<uint64_t> free_beside(const void*) { return absent(); }

Result<Context> Context::create(const ContextOptions&) { return absent(); }
std::function<void(std::vector<uint8_t>)> Context::recycler() const {
  return [](std::vector<uint8_t>) {};
}
Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
Result<std::vector<Coded>> Context::encode(std::string_view, std::span<const Pair>, Stream,
                                           NewDigests) {
  return absent();
}
Status Context::apply(std::span<const Patch>, Stream) { return absent(); }
Status Context::apply_checked(std::span<const Patch>, Stream, std::vector<std::optional<Digest>>*) {
  return absent();
}
void Context::forget_checked() noexcept {}
uint64_t Context::kept_bytes() const noexcept { return 0; }
Status Context::check(std::span<const Patch>, Stream) { return absent(); }
Result<std::vector<Digest>> Context::digests(std::span<const Contents>, Stream) { return absent(); }
Result<std::vector<Sums>> Context::sums(std::span<const BoxContents>, Stream) { return absent(); }
Status Context::fetch(const Contents&, uint64_t, std::span<uint8_t>, Stream) { return absent(); }
Status Context::send(std::span<const uint8_t>, void*, Stream) { return absent(); }
Result<std::vector<exponents::BlockPlan>> plan_whole_array(const Context&, const Contents&,
                                                           Stream) {
  return absent();
}
Status code_whole_array(const Context&, const Contents&, size_t,
                        std::span<const exponents::BlockPlan>, MutableBytes, Stream) {
  return absent();
}
Status DeviceBuffer::reserve(const Context&, uint64_t, bool) { return absent(); }
Status copy_there(void*, const void*, uint64_t, Stream) { return absent(); }
Result<std::vector<Fp8Outcome>> quantise_fp8(std::span<const Fp8Task>, Fp8Digests, Stream) {
  return absent();
}
Status mark_fp8(std::span<const Fp8Task>, MarkedFp8*, Stream) { return absent(); }
Status make_group_codes(const GroupJob&, Stream) { return absent(); }
bool has_marks(const Fp8Weights&) noexcept { return false; }
uint64_t marked_bytes(size_t) noexcept { return 0; }
DeviceSnapshot::DeviceSnapshot(Context*, Placement) {}
DeviceSnapshot::~DeviceSnapshot() = default;
DeviceSnapshot::DeviceSnapshot(DeviceSnapshot&&) noexcept = default;
DeviceSnapshot& DeviceSnapshot::operator=(DeviceSnapshot&&) noexcept = default;
Result<DeviceSnapshot::Slot> DeviceSnapshot::add(const Contents&, Stream) { return absent(); }
Result<DeviceSnapshot::Slot> DeviceSnapshot::add(std::span<const uint8_t>, DType, Matrices) {
  return absent();
}
void DeviceSnapshot::remove(Slot) noexcept {}
Result<std::vector<Coded>> DeviceSnapshot::encode(std::string_view, std::span<const Change>, Stream,
                                                  NewDigests) {
  return absent();
}
Result<std::vector<Digest>> DeviceSnapshot::replace(std::span<const Change>, Stream) {
  return absent();
}
Status DeviceSnapshot::advance(std::span<const Step>, Stream) { return absent(); }
Result<std::vector<Digest>> DeviceSnapshot::digests(std::span<const Slot>, Stream) const {
  return absent();
}
Status DeviceSnapshot::read(Slot, uint64_t, std::span<uint8_t>, Stream) const { return absent(); }
uint8_t* DeviceSnapshot::data(Slot) const noexcept { return nullptr; }
uint64_t DeviceSnapshot::device_bytes() const noexcept { return 0; }
uint64_t DeviceSnapshot::host_bytes() const noexcept { return 0; }

}  // namespace deltawire::cuda

namespace deltawire {

struct DeviceExchange::Impl {};

Result<DeviceExchange> DeviceExchange::stage(std::span<const ExchangeList* const>,
                                             std::optional<uint64_t>) {
  return cuda::available();
}
DeviceExchange::~DeviceExchange() = default;
DeviceExchange::DeviceExchange(DeviceExchange&&) noexcept = default;
DeviceExchange& DeviceExchange::operator=(DeviceExchange&&) noexcept = default;
Status DeviceExchange::start(CUstream_st*) { return cuda::available(); }
Status DeviceExchange::finish(CUstream_st*) { return cuda::available(); }
uint64_t DeviceExchange::device_bytes() const noexcept { return 0; }
uint64_t DeviceExchange::host_bytes() const noexcept { return 0; }

struct DeviceStage::Impl {};

Result<DeviceStage> DeviceStage::create(std::span<const void* const>, uint64_t, unsigned) {
  return cuda::available();
}
Status DeviceStage::begin(std::span<const void* const>, const DeviceStageOptions&) {
  return cuda::available();
}
DeviceStage::~DeviceStage() = default;
DeviceStage::DeviceStage(DeviceStage&&) noexcept = default;
DeviceStage& DeviceStage::operator=(DeviceStage&&) noexcept = default;
uint8_t* DeviceStage::copies() const noexcept { return nullptr; }
Status DeviceStage::list(std::span<const cuda::Patch>, std::span<const CopiedRows>) {
  return cuda::available();
}
Status DeviceStage::copy(std::span<const CopiedRows>) { return cuda::available(); }
Status DeviceStage::apply(std::span<const cuda::Patch>) { return cuda::available(); }
Status DeviceStage::collect(std::span<const CopiedRows>) { return cuda::available(); }
Status DeviceStage::fetch(std::span<const CopiedRows>) { return cuda::available(); }
uint64_t DeviceStage::num_changed() const noexcept { return 0; }
Result<DeviceExchange> DeviceStage::finish(std::span<const ExchangeList* const>) {
  return cuda::available();
}

}  // namespace deltawire
