/* nccl_device.h in a host file of C99. */
#include <nccl_device.h>

#include <string.h>

int main(void) {
  ncclDevCommRequirements_t asked = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  ncclDevComm_t device;
  int count = 0;
  struct ncclDevComm copy;
  config.blocking = 1;
  asked.lsaBarrierCount = 1;
  if (ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRankConfig(&comm, 1, id, 0, &config) != ncclSuccess) return 1;
  if (ncclCommCount(comm, &count) != ncclSuccess || count != 1) return 2;
  if (ncclCommQueryProperties(comm, &properties) != ncclSuccess || !properties.deviceApiSupport) return 3;
  if (ncclDevCommCreate(comm, &asked, &device) != ncclSuccess || device.nRanks != 1 || device.lsaSize != 1) return 4;
  memcpy(&copy, &device, sizeof device);
  if (ncclDevCommDestroy(comm, &copy) != ncclSuccess) return 5;
  return ncclCommDestroy(comm) == ncclSuccess ? 0 : 6;
}
