/// \file mpi.h
/// The part of MPI that programs use around their kernels, for `devcomm-simulate --mpi`: its ranks are threads of one
/// process, or processes, on this host. C and C++.
#ifndef DEVCOMM_SIMULATOR_MPI_H_
#define DEVCOMM_SIMULATOR_MPI_H_

#define MPI_VERSION 3
#define MPI_SUBVERSION 1

typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Op;
typedef int MPI_Info;
typedef long MPI_Aint;

#define MPI_COMM_NULL ((MPI_Comm)-1)
#define MPI_COMM_WORLD ((MPI_Comm)0)
#define MPI_INFO_NULL ((MPI_Info)0)
#define MPI_IN_PLACE ((void*)-1)
#define MPI_UNDEFINED (-32766)
#define MPI_COMM_TYPE_SHARED 1
#define MPI_MAX_PROCESSOR_NAME 64
#define MPI_MAX_ERROR_STRING 64

#define MPI_SUCCESS 0
#define MPI_ERR_OTHER 1

#define MPI_THREAD_SINGLE 0
#define MPI_THREAD_FUNNELED 1
#define MPI_THREAD_SERIALIZED 2
#define MPI_THREAD_MULTIPLE 3

/* A type has its size in the lower four bits, and what it is in the next four. */
#define MPI_CHAR ((MPI_Datatype)0x11)
#define MPI_SIGNED_CHAR ((MPI_Datatype)0x11)
#define MPI_INT8_T ((MPI_Datatype)0x11)
#define MPI_SHORT ((MPI_Datatype)0x12)
#define MPI_INT16_T ((MPI_Datatype)0x12)
#define MPI_INT ((MPI_Datatype)0x14)
#define MPI_INT32_T ((MPI_Datatype)0x14)
#define MPI_LONG ((MPI_Datatype)0x18)
#define MPI_LONG_LONG ((MPI_Datatype)0x18)
#define MPI_LONG_LONG_INT ((MPI_Datatype)0x18)
#define MPI_INT64_T ((MPI_Datatype)0x18)
#define MPI_AINT ((MPI_Datatype)0x18)
#define MPI_BYTE ((MPI_Datatype)0x21)
#define MPI_UNSIGNED_CHAR ((MPI_Datatype)0x21)
#define MPI_UINT8_T ((MPI_Datatype)0x21)
#define MPI_C_BOOL ((MPI_Datatype)0x21)
#define MPI_CXX_BOOL ((MPI_Datatype)0x21)
#define MPI_UNSIGNED_SHORT ((MPI_Datatype)0x22)
#define MPI_UINT16_T ((MPI_Datatype)0x22)
#define MPI_UNSIGNED ((MPI_Datatype)0x24)
#define MPI_UINT32_T ((MPI_Datatype)0x24)
#define MPI_UNSIGNED_LONG ((MPI_Datatype)0x28)
#define MPI_UNSIGNED_LONG_LONG ((MPI_Datatype)0x28)
#define MPI_UINT64_T ((MPI_Datatype)0x28)
#define MPI_FLOAT ((MPI_Datatype)0x34)
#define MPI_DOUBLE ((MPI_Datatype)0x38)

#define MPI_SUM ((MPI_Op)1)
#define MPI_PROD ((MPI_Op)2)
#define MPI_MAX ((MPI_Op)3)
#define MPI_MIN ((MPI_Op)4)
#define MPI_LAND ((MPI_Op)5)
#define MPI_LOR ((MPI_Op)6)
#define MPI_BAND ((MPI_Op)7)
#define MPI_BOR ((MPI_Op)8)

#ifdef __cplusplus
extern "C" {
#endif

/* What fails ends the program with a sentence; so does a rank that returns from main while others wait for it. */
int MPI_Init(int* argc, char*** argv);
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided);
int MPI_Initialized(int* flag);
int MPI_Finalize(void);
int MPI_Finalized(int* flag);
int MPI_Abort(MPI_Comm comm, int code);
int MPI_Comm_rank(MPI_Comm comm, int* rank);
int MPI_Comm_size(MPI_Comm comm, int* size);
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made);
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made);
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made);
int MPI_Comm_free(MPI_Comm* comm);
int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* receive, int receive_count,
                  MPI_Datatype receive_type, MPI_Comm comm);
int MPI_Gather(const void* send, int send_count, MPI_Datatype send_type, void* receive, int receive_count,
               MPI_Datatype receive_type, int root, MPI_Comm comm);
int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm);
int MPI_Get_processor_name(char* name, int* length);
int MPI_Error_string(int code, char* text, int* length);
double MPI_Wtime(void);

#ifdef __cplusplus
}
#endif

#endif
