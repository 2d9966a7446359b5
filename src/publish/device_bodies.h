// Tensors of a GPU as what stores and packers read from.
#pragma once

#include <memory>

#include "publish/device.h"

namespace deltawire {

std::shared_ptr<const Body> device_body(std::shared_ptr<PublishDevice> device,
                                        const PublishTensor& tensor);
std::shared_ptr<const ArrayCoder> device_coder(std::shared_ptr<PublishDevice> device,
                                               const PublishTensor& tensor);
Status changed_on_device(const PublishTensor& tensor);

}  // namespace deltawire
