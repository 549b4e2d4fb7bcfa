"""Identity and workspaces (wire contract 5.2, 5.10 and 8.15); mixed into Gateway."""

from __future__ import annotations

import time
import uuid

import grpc
from openshell._proto import datamodel_pb2 as dm
from openshell._proto import openshell_pb2 as pb

from . import limits
from .limits import Refused

Code = grpc.StatusCode
PREPARED = ("default", "tests")


def workspace(name: str, labels) -> dm.Workspace:
    record = dm.Workspace()
    record.metadata.id, record.metadata.name = str(uuid.uuid4()), name
    record.metadata.created_at_ms, record.metadata.resource_version = int(time.time() * 1000), 1
    record.metadata.labels.update(labels)
    record.status.phase = dm.WORKSPACE_PHASE_ACTIVE
    return record


class Workspaces:
    def __init__(self) -> None:
        self.workspaces = {name: workspace(name, {}) for name in PREPARED}

    def workspace_named(self, name: str) -> dm.Workspace:
        found = self.workspaces.get(name or "default")
        if found is None:
            raise Refused(Code.NOT_FOUND, "workspace not found")
        return found

    def workspace_for_create(self, name: str) -> None:
        if self.workspace_named(name).status.phase != dm.WORKSPACE_PHASE_ACTIVE:
            raise Refused(Code.FAILED_PRECONDITION, "workspace is terminating")

    async def GetGatewayInfo(self, request, context):
        answer = pb.GetGatewayInfoResponse(status=1, gateway_version=self.version)
        driver = answer.compute_drivers.add(name="docker")
        driver.capabilities.driver_name = "namespaces"
        return answer

    async def GetCurrentUser(self, request, context):
        return pb.GetCurrentUserResponse(subject="tests", identity_provider="oidc")

    async def CreateWorkspace(self, request, context):
        limits.check_name(request.name)
        for key, value in request.labels.items():
            limits.check_label(key, value)
        if request.name in self.workspaces:
            raise Refused(Code.ALREADY_EXISTS, f"workspace {request.name} already exists")
        made = self.workspaces[request.name] = workspace(request.name, request.labels)
        return pb.CreateWorkspaceResponse(workspace=made)

    async def GetWorkspace(self, request, context):
        if not request.name:
            raise limits.invalid("name is required")
        return pb.GetWorkspaceResponse(workspace=self.workspace_named(request.name))

    async def ListWorkspaces(self, request, context):
        rows = limits.page(self.workspaces.values(), request)
        return pb.ListWorkspacesResponse(workspaces=rows)

    async def DeleteWorkspace(self, request, context):
        found = self.workspace_named(request.name)
        if request.name in ("", "default"):
            raise Refused(Code.FAILED_PRECONDITION, "the default workspace cannot be deleted")
        found.status.phase = dm.WORKSPACE_PHASE_TERMINATING
        if any(box.record.metadata.workspace == request.name for box in self.boxes.by_id.values()):
            raise Refused(Code.FAILED_PRECONDITION, "workspace is not empty")
        del self.workspaces[request.name]
        return pb.DeleteWorkspaceResponse(deleted=True)
