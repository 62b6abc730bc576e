"""The table properties that Delta 4.4 knows on open-source Spark."""

from __future__ import annotations

__all__ = ["is_known_property", "is_server_property"]

_KNOWN = frozenset(
    key.casefold()
    for key in [
        "delta.appendOnly",
        "delta.autoOptimize",
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.castIcebergTimeType",
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.checkpointInterval",
        "delta.checkpointPolicy",
        "delta.checkpointRetentionDuration",
        "delta.columnMapping.maxColumnId",
        "delta.columnMapping.mode",
        "delta.compatibility.symlinkFormatManifest.enabled",
        "delta.coordinatedCommits.commitCoordinator-preview",
        "delta.coordinatedCommits.commitCoordinatorConf-preview",
        "delta.coordinatedCommits.tableConf-preview",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.dataSkippingStringPrefixLength",
        "delta.deletedFileRetentionDuration",
        "delta.dropFeatureTruncateHistory.retentionDuration",
        "delta.enableChangeDataCapture",
        "delta.enableChangeDataFeed",
        "delta.enableDeletionVectors",
        "delta.enableExpiredLogCleanup",
        "delta.enableFullRetentionRollback",
        "delta.enableIcebergCompatV1",
        "delta.enableIcebergCompatV2",
        "delta.enableIcebergCompatV3",
        "delta.enableInCommitTimestamps",
        "delta.enableMaterializePartitionColumnsFeature",
        "delta.enableRowTracking",
        "delta.enableTypeWidening",
        "delta.enableVariantShredding",
        "delta.ignoreIcebergBucketPartition",
        "delta.ignoreProtocolDefaults",
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.inCommitTimestampEnablementVersion",
        "delta.isolationLevel",
        "delta.logRetentionDuration",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.parquet.format.version",
        "delta.randomPrefixLength",
        "delta.randomizeFilePrefixes",
        "delta.redirectReaderWriter-preview",
        "delta.redirectWriterOnly-preview",
        "delta.requireCheckpointProtectionBeforeVersion",
        "delta.rowTrackingSuspended",
        "delta.sampleRetentionDuration",
        "delta.setTransactionRetentionDuration",
        "delta.universalFormat.enabledFormats",
        "delta.universalFormat.iceberg.atomicConversion.supported",
        "delta.writePartitionColumnsToParquet",
    ]
)
# Set by Delta or the catalog as a consequence of something else; never declared, never compared.
_SERVER = (
    "delta.columnmapping.maxcolumnid",
    "delta.rowtracking.materialized",
    "delta.incommittimestampenablement",
    "delta.feature.",
    "delta.minreaderversion",
    "delta.minwriterversion",
    "delta.lastcommittimestamp",
    "delta.lastupdateversion",
    "delta.constraints.",
    "delta.clusteringcolumns",
    "delta.requirecheckpointprotectionbeforeversion",
    "delta.redirect",
    "clusterbyauto",
    "clusteringcolumns",
    "deltaplane.",
    "option.",
    "spark.",
    "view.",
)


def is_known_property(key: str) -> bool:
    """Tell whether open-source Delta accepts the property. Names outside `delta.` are the user's own."""
    return not key.casefold().startswith("delta.") or key.casefold() in _KNOWN


def is_server_property(key: str) -> bool:
    """Tell whether the server sets the property by itself."""
    return key.casefold().startswith(_SERVER)
