// Lists and deletes models that pages store by the option `cache`.

import { place } from '../../common/place.js';
import { deleteModel, listModels } from '../../storage/kept_models.js';
import { room } from '../../storage/quota.js';

export const models = {
  list: listModels,
  /** @param {string} url */
  delete: (url) => deleteModel(place.address(url)),
  room,
};
